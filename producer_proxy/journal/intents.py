"""Encoding of the intents of one batch in one call. The reference of `_intents`."""

from collections.abc import Sequence

from producer_proxy.buffer.blocks import ENTRY, pack_block
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.targets.base import MessageSlice


def intents_of(position: int, accepted_at_ms: int, messages: Sequence[MessageSlice]) -> tuple[bytes, list[int]]:
    """The blocks of these messages as entries of the buffer's format, and the position of each.

    A key that is a queue's number is left out: the entry's queue is that of the primary's answer.

    Args:
        position: of the first block; a multiple of 8.
    """
    data, positions = bytearray(), []
    for destination, key, assigned_id, encoded in messages:
        at = position + len(data)
        entry = BufferEntry(
            destination.name, key if isinstance(key, bytes) else None, assigned_id, encoded, accepted_at_ms
        )
        data += pack_block(ENTRY, at, entry.encode())
        positions.append(at)
    return bytes(data), positions
