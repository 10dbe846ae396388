"""A file of names beside a sealed segment: sorted hashes of ids or keys, each with the address of a batch that has it.

In blocks of 4 KiB, each with a checksum that says which block of which file it is; so any one can be read and trusted without the others.
Hashes are spread evenly, so the block is guessed from the hash: one or two are read for a name. Layout: docs/format/log.md.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, Protocol

from engine.env import Env, File
from engine.errors import CorruptionError
from engine.log.format import segment_name
from engine.log.index_file import IndexHeader
from engine.log.native import crc32c

MAGIC = b"PNSTLKP1"
BLOCK = 4096
BLOCK_ENTRIES = 340
BLOCKS_A_WRITE = 64
SYNC_BLOCKS = 256
"""Synced so often while it is written: the log's own syncs wait behind ours."""

_GUESSES = 4
"""Then the rest is halved: one hash may have many entries, and guessing would go on from block to block."""

_HEADER = struct.Struct("<8s16sQIIQIIqq")
_SEED = struct.Struct("<16sQI")
_ENTRY = struct.Struct("<QI")
_HASHES = 1 << 64


class Family(NamedTuple):
    """What names a file holds. `number` is in its header."""

    name: str
    number: int
    suffix: str


ID, KEY = Family("id", 1, ".mid"), Family("key", 2, ".key")
FAMILIES = {family.name: family for family in (ID, KEY)}


class Summary(NamedTuple):
    """What a file's header says. The times are those of its segment's oldest and newest message."""

    blocks: int
    entries: int
    oldest_ms: int
    newest_ms: int


class Collected(Protocol):
    """A pass of a Collector that has finished."""

    def blocks(self, first: int, count: int, seed: bytes, number: int) -> bytes: ...


def name_path(directory: str, base: int, family: Family) -> str:
    """Path of the segment's file of that family."""
    return f"{directory}/{segment_name(base).removesuffix('.seg')}{family.suffix}"


def entries_of(block: bytes) -> bytes:
    """The entries of a block, packed."""
    return block[8 : 8 + int.from_bytes(block[4:8], "little") * _ENTRY.size]


class NameFileWriter:
    """Writes one file under another name; it gets its own when it is whole and synced. `close()` it in any case."""

    def __init__(self, env: Env, directory: str, log_id: bytes, base: int, family: Family) -> None:
        self._env, self._directory, self._log_id, self._base, self._family = env, directory, log_id, base, family
        self.path = name_path(directory, base, family)
        self._seed = _SEED.pack(log_id, base, family.number)
        self._blocks = self._entries = 0
        self._file: File | None = env.open(self.path + ".tmp", create=True)

    def add(self, collected: Collected, count: int) -> Iterator[int]:
        """Write the entries of one pass; yields bytes written."""
        for first in range(0, count, BLOCKS_A_WRITE * BLOCK_ENTRIES):
            data = collected.blocks(first, BLOCKS_A_WRITE, self._seed, self._blocks + 1)
            self._write(data, BLOCK * (1 + self._blocks))
            before, self._blocks = self._blocks, self._blocks + len(data) // BLOCK
            if before // SYNC_BLOCKS != self._blocks // SYNC_BLOCKS:
                self._opened.sync()
            yield len(data)
        self._entries += count

    def finish(self, index: IndexHeader, oldest_ms: int, newest_ms: int) -> None:
        """Write the header, sync and name the file. Blocks.

        Args:
            index: of the segment; says which state of it this is.
        """
        fields = (self._log_id, self._base, self._family.number, self._blocks, self._entries)
        head = _HEADER.pack(MAGIC, *fields, index.last_at, index.last_crc, oldest_ms, newest_ms).ljust(BLOCK - 4, b"\0")
        self._write(head + crc32c(head).to_bytes(4, "little"), 0)
        self._opened.sync()
        self._env.rename(self.path + ".tmp", self.path)
        self._opened.close()
        self._file = None
        self._env.sync_directory(self._directory)

    def close(self) -> None:
        """Leave nothing of a file that was not finished."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._env.unlink(self.path + ".tmp")

    @property
    def _opened(self) -> File:
        assert self._file is not None
        return self._file

    def _write(self, data: bytes, at: int) -> None:
        left = memoryview(data)
        while left.nbytes:
            taken = self._opened.write_at(left, at)
            left, at = left[taken:], at + taken


class NameFile:
    """An open file of names. `close()` it.

    Args:
        index: of the segment as it is now.
    Raises:
        CorruptionError: it is missing, damaged, of another segment, or of an earlier state of this one.
    """

    def __init__(self, env: Env, directory: str, log_id: bytes, base: int, family: Family, index: IndexHeader) -> None:
        self.path = name_path(directory, base, family)
        self._seed = _SEED.pack(log_id, base, family.number)
        try:
            self._file = env.open(self.path)
        except FileNotFoundError:
            raise CorruptionError(self.path, 0, 0, "the file of names is missing") from None
        try:
            self.summary = self._header((log_id, base, family.number), (index.last_at, index.last_crc))
        except (CorruptionError, OSError):
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def addresses(self, hashed: int, from_at: int = 0) -> Iterator[int]:
        """Ascending addresses of the batches with that hash, from an address on. Raises CorruptionError when a block does not verify."""
        number, entries = self._find((hashed, from_at))
        while entries:
            start = bisect_left(entries, (hashed, from_at))
            for entry_hash, at in entries[start:]:
                if entry_hash != hashed:
                    return
                yield at
            number += 1
            entries = self.block(number) if number <= self.summary.blocks else []

    def check(self) -> Iterator[int]:
        """Verify every block and the order of all entries; yields bytes read. Raises CorruptionError."""
        last, entries = (-1, 0), 0
        for number in range(1, self.summary.blocks + 1):
            found = self.block(number)
            if any(above <= below for below, above in pairwise([last, *found])):
                raise CorruptionError(self.path, number * BLOCK, BLOCK, f"block {number} is not in order")
            last = found[-1]
            entries += len(found)
            yield BLOCK
        if entries != self.summary.entries:
            raise CorruptionError(self.path, 0, BLOCK, "it has not as many entries as its header says")

    def block(self, number: int) -> list[tuple[int, int]]:
        """The sorted (hash, address) of a block, the first being 1. Raises CorruptionError."""
        return list(_ENTRY.iter_unpack(self.packed(number)))

    def packed(self, number: int) -> bytes:
        """The same as it is in the file."""
        data = self._read(number)
        crc = crc32c(data[4:], crc32c(self._seed + number.to_bytes(4, "little")))
        count = int.from_bytes(data[4:8], "little")
        if len(data) < BLOCK or crc != int.from_bytes(data[:4], "little") or not 1 <= count <= BLOCK_ENTRIES:
            raise CorruptionError(self.path, number * BLOCK, BLOCK, f"block {number} does not verify")
        return entries_of(data)

    def _find(self, wanted: tuple[int, int]) -> tuple[int, list[tuple[int, int]]]:
        """The first block whose last entry is not below the wanted one, or no entries."""
        low, high = 1, self.summary.blocks + 1
        low_hash, high_hash = 0, _HASHES
        guesses, found = 0, (0, [])  # type: tuple[int, tuple[int, list[tuple[int, int]]]]
        while low < high:
            number = (low + high) // 2
            if guesses < _GUESSES:
                number = low + (high - low) * (wanted[0] - low_hash) // (high_hash - low_hash + 1)
            guesses += 1
            number = min(max(number, low), high - 1)
            entries = self.block(number)
            if entries[-1] < wanted:
                low, low_hash = number + 1, entries[-1][0]
            elif entries[0] <= wanted:
                return number, entries
            else:
                high, high_hash, found = number, entries[0][0], (number, entries)
        return found

    def _header(self, whose: tuple[bytes, int, int], state: tuple[int, int]) -> Summary:
        data = self._read(0)
        if len(data) < BLOCK or crc32c(data[:-4]).to_bytes(4, "little") != data[-4:]:
            raise CorruptionError(self.path, 0, len(data), "its header does not verify")
        magic, log_id, base, number, blocks, entries, last_at, last_crc, oldest_ms, newest_ms = _HEADER.unpack_from(
            data
        )
        if magic != MAGIC or (log_id, base, number) != whose:
            raise CorruptionError(self.path, 0, len(data), "it belongs to another segment")
        if (last_at, last_crc) != state:
            raise CorruptionError(self.path, 0, len(data), "it belongs to an earlier state of its segment")
        if self._file.size() != BLOCK * (1 + blocks):
            raise CorruptionError(self.path, 0, self._file.size(), "it is not as long as its header says")
        return Summary(blocks, entries, oldest_ms, newest_ms)

    def _read(self, number: int) -> bytes:
        try:
            return self._file.read_at(BLOCK, number * BLOCK)
        except OSError as error:
            raise CorruptionError(self.path, number * BLOCK, BLOCK, f"it cannot be read: {error.strerror}") from error
