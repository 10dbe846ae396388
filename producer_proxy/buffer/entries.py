"""Buffered entries from the bytes of a store, a stretch of them in one call, for the drain. The twin of `_entries`, and its description."""

from collections.abc import Iterable, Sequence

from producer_proxy.buffer.disk.format import block_at, pack_done
from producer_proxy.buffer.entry import Entry, EntryError, decode
from producer_proxy.buffer.redis.value import unpack_value


def entries_at(data: bytes, start: int, positions: Iterable[int], bytes_max: int) -> tuple[list[Entry], int]:
    """The entries of a disk buffer's blocks at these ascending positions, and what they take in bytes.

    It ends before the first that does not lie whole in `data`, is not what was written, or is one too many for `bytes_max`; one is given
    whatever its size.

    Args:
        data: bytes of one segment, from the log's position `start` on.
    """
    found: list[Entry] = []
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


def entries_of(values: Iterable[bytes]) -> list[Entry | None]:
    """An entry for each of a Redis buffer's values; None for one that is not ours or not whole."""
    return [_entry_of(value) for value in values]


def marks_of(base: int, offsets: Sequence[int]) -> bytes:
    """The marks of drained entries of the segment at `base`."""
    return b"".join(pack_done(base + offset, offset) for offset in offsets)


def _entry_of(value: bytes) -> Entry | None:
    try:
        return unpack_value(value)
    except EntryError:
        return None
