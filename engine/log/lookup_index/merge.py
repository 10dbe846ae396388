"""Sorted lookup entries: laid out in the blocks of a file, read from them, and merged from several files.

Reference for _merge.pyx.
"""

import struct
from collections.abc import Iterator
from heapq import merge
from itertools import chain, islice

from google_crc32c import extend, value

BLOCK = 4096
BLOCK_ENTRIES = 340
_ENTRY = struct.Struct("<QI")


def packed_blocks(held: list[tuple[int, int]], first: int, count: int, seed: bytes, number: int) -> bytes:
    """Up to `count` blocks with the sorted entries from `first` on; the first block has that number."""
    out = bytearray()
    for start in range(first, min(len(held), first + count * BLOCK_ENTRIES), BLOCK_ENTRIES):
        entries = held[start : start + BLOCK_ENTRIES]
        packed = b"".join(_ENTRY.pack(*entry) for entry in entries)
        body = (len(entries).to_bytes(4, "little") + packed).ljust(BLOCK - 4, b"\0")
        crc = extend(extend(value(seed), number.to_bytes(4, "little")), body)
        out += crc.to_bytes(4, "little") + body
        number += 1
    return bytes(out)


def unpacked_blocks(data: bytes, seed: bytes, number: int) -> tuple[bytes, int]:
    """(entries, number of blocks that have them) of blocks, up to the first that does not verify or is not whole."""
    entries: list[bytes] = []
    for at in range(0, len(data) - BLOCK + 1, BLOCK):
        block = data[at : at + BLOCK]
        crc = extend(extend(value(seed), (number + len(entries)).to_bytes(4, "little")), block[4:])
        count = int.from_bytes(block[4:8], "little")
        if crc != int.from_bytes(block[:4], "little") or not 1 <= count <= BLOCK_ENTRIES:
            break
        entries.append(block[8 : 8 + count * _ENTRY.size])
    return b"".join(entries), len(entries)


class Merger:
    """Merges the sorted entries of several files.

    Args:
        sources: per file its packed entries in order, in pieces of which none is empty.
    """

    def __init__(self, sources: list[Iterator[bytes]]) -> None:
        self._merged = merge(*(chain.from_iterable(map(_ENTRY.iter_unpack, source)) for source in sources))
        self._entries: list[tuple[int, int]] = []

    def fill(self, count: int) -> int:
        """Hold the next `count` entries, fewer at the end; returns their number."""
        self._entries = list(islice(self._merged, count))
        return len(self._entries)

    def blocks(self, first: int, count: int, seed: bytes, number: int) -> bytes:
        """Up to `count` blocks of a file, with the entries held from `first` on; the first block has that number."""
        return packed_blocks(self._entries, first, count, seed, number)
