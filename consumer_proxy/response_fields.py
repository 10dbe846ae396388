"""Fields of a PullResponse that do not depend on its messages, in strict binary encoding."""

import struct
from collections.abc import Sequence

from common.config.definitions import TopicDefinition
from common.placement import topic_hash
from engine.link.codes import OK

SOURCE_HEAD = struct.Struct("<QI")
"""A row of a reply's table of sources: topic hash of a token ‖ size of field 10 of a Delivery, which follows as it is
sent."""


def source_row(topic: bytes, source: str) -> bytes:
    """The row by which deliveries of a topic tell their source."""
    field = text_field(10, source)
    return SOURCE_HEAD.pack(topic_hash(topic), len(field)) + field


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


def topic_list(topics: Sequence[TopicDefinition]) -> bytes:
    """Field 7 of a PullResponse that names topics; there even when it has none."""
    parts = [struct.pack(">BHBI", 15, 7, 12, len(topics))]
    parts += [
        struct.pack(">BHi", 8, 1, OK) + text_field(2, each.name)
        + struct.pack(">BHiBHq", 8, 4, each.queues, 10, 5, each.id_window_ms) + b"\0"
        for each in topics
    ]  # fmt: skip
    return b"".join(parts)


def text_field(field: int, text: str) -> bytes:
    """A field of type string."""
    data = text.encode()
    return struct.pack(">BHI", 11, field, len(data)) + data
