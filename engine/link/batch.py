"""Batches: records of one queue as a proxy appends them. The log stores them as they are (docs/format/log.md)."""

import struct
from collections.abc import Sequence

BATCH_HEADER = struct.Struct("<IIHBBIIIIIQq")
"""Checksum ‖ size ‖ magic ‖ kind ‖ flags ‖ epoch ‖ topic id ‖ queue ‖ count ‖ id window ‖ base offset ‖ stored_at_ms.

A proxy leaves checksum, epoch, offset and time zero; the log fills them in.
"""

BATCH_MAGIC = 0x5042
BATCH_HEADER_SIZE = 48
CHECK_IDS = BATCH_CHECK_IDS = 1
"""Flag of a batch of one message: DUPLICATE if the topic has had its id within the header's window, in ms."""

COPIED = BATCH_COPIED = 2
"""Flag of a batch of copied records; the header's id window is the number of their source (docs/design/0036-copied-batches.md)."""

_KIND_MESSAGES = 0


def encode_batch(topic_id: int, queue: int, records: Sequence[bytes], id_window_ms: int = 0) -> bytes:
    """Encode one batch, padded to a multiple of 8. With a window, the id of its one message is checked."""
    data = b"".join(records)
    size = BATCH_HEADER_SIZE + len(data)
    flags = CHECK_IDS if id_window_ms else 0
    head = BATCH_HEADER.pack(
        0, size, BATCH_MAGIC, _KIND_MESSAGES, flags, 0, topic_id, queue, len(records), id_window_ms, 0, 0
    )
    return head + data + bytes(-len(data) % 8)


def encode_copied_batch(topic_id: int, queue: int, number: int, records: Sequence[bytes]) -> bytes:
    """Encode one batch of records with their source offsets, padded to a multiple of 8. `number`: of their source."""
    return encode_packed_batch(topic_id, queue, number, b"".join(records), len(records))


def encode_packed_batch(topic_id: int, queue: int, number: int, data: bytes, count: int) -> bytes:
    """As `encode_copied_batch`, of so many records in one text."""
    size = BATCH_HEADER_SIZE + len(data)
    head = BATCH_HEADER.pack(0, size, BATCH_MAGIC, _KIND_MESSAGES, COPIED, 0, topic_id, queue, count, number, 0, 0)
    return head + data + bytes(-len(data) % 8)
