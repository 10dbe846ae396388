"""Decoding of many buffered entries in one call, for the drain. The reference of `_entries`."""

from collections.abc import Iterable, Sequence

from producer_proxy.buffer.blocks import block_at, pack_done
from producer_proxy.buffer.entry import BufferEntry, EntryError, decode
from producer_proxy.buffer.value import unpack_value


def entries_at(data: bytes, start: int, positions: Iterable[int], bytes_max: int) -> tuple[list[BufferEntry], int]:
    """The entries of a disk buffer's blocks at these ascending positions, and their size in bytes.

    It ends before the first block that is not whole in `data`, is damaged, or would exceed `bytes_max`. The first entry
    may exceed it.

    Args:
        data: bytes of one segment, from the log's position `start` on.
    """
    found: list[BufferEntry] = []
    used = 0
    for position in positions:
        block = block_at(data, position - start, position) if position >= start else None
        if block is None or (found and used + len(block.payload) > bytes_max):
            break
        try:
            found.append(decode(block.payload))
        except EntryError:
            break
        used += len(block.payload)
    return found, used


def entries_of(values: Iterable[bytes]) -> list[BufferEntry | None]:
    """An entry for each of a Redis buffer's values; None for a foreign or damaged value."""
    return [_entry_of(value) for value in values]


def marks_of(base: int, offsets: Sequence[int]) -> bytes:
    """The marks of drained entries of the segment at `base`."""
    return b"".join(pack_done(base + offset, offset) for offset in offsets)


def _entry_of(value: bytes) -> BufferEntry | None:
    try:
        return unpack_value(value)
    except EntryError:
        return None
