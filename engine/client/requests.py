"""An APPEND of one message that waits for a reply: one batch, one record, its token behind the message."""

import struct

from engine.link import layout

_BATCH = struct.Struct("<IIHBBIIIIIQq")
_MAGIC = 0x5042


def encode_request(
    topic_id: int, queue: int, id16: bytes | None, message: bytes, token: bytes, durability: int
) -> bytes:
    """The payload of the APPEND.

    Args:
        id16: the assigned id; None when the message has one of its own.
        durability: layout.MEMORY or layout.FSYNC.
    """
    flags = layout.HAS_TRAILER | (0 if id16 is None else layout.HAS_ID)
    record = bytes([flags]) + (id16 or b"") + message + token
    size = layout.BATCH_HEADER_SIZE + 4 + len(record)
    head = _BATCH.pack(0, size, _MAGIC, 0, 0, 0, topic_id, queue, 1, 0, 0, 0)
    batch = head + layout.U32.pack(len(record)) + record
    return layout.APPEND_HEAD.pack(durability, 1) + batch + bytes(-size % 8)


def decode_appended(payload: bytes) -> tuple[int, int]:
    """(code, offset) out of the answer."""
    code, _, offset = layout.APPEND_RESULT.unpack(payload)
    return code, offset
