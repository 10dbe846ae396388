"""Fields of a PullResponse that do not depend on its messages, in strict binary encoding."""

import struct
from collections.abc import Sequence


def lease_time(invisible_ms: int) -> bytes:
    """Field 8 of a PullResponse."""
    return struct.pack(">BHi", 8, 8, invisible_ms)


def topic_reports(refused: Sequence[tuple[str, int, str]]) -> bytes:
    """Field 7 of a PullResponse: (topic, code, sentence) of each topic that is left out; empty without any."""
    if not refused:
        return b""
    parts = [struct.pack(">BHBI", 15, 7, 12, len(refused))]
    parts += [
        struct.pack(">BHi", 8, 1, code) + text_field(2, topic) + text_field(3, sentence) + b"\0"
        for topic, code, sentence in refused
    ]
    return b"".join(parts)


def text_field(field: int, text: str) -> bytes:
    """A field of type string."""
    data = text.encode()
    return struct.pack(">BHI", 11, field, len(data)) + data
