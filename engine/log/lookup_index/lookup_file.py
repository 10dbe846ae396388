"""A lookup file beside a sealed segment: sorted hashes of ids or keys, each with the address of a batch that has it.

A partial index is the same for a stretch of the active segment. Both are blocks of 4 KiB, each with a checksum that
depends on the file and the block's number, so one block can be read and trusted without the others. Hashes are spread
evenly, so the block is estimated from the hash: one or two are read per look-up. Layout: docs/format/log.md.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, Protocol

from engine.env.base import Env, File
from engine.errors import CorruptionError
from engine.log.format import segment_name
from engine.log.lookup_index.native import unpacked_blocks
from engine.log.segment.index_file import IndexHeader
from engine.log.segment.native import crc32c

MAGIC, RUN_MAGIC = b"PNSTLKP1", b"PNSTRUN1"
BLOCK = 4096
BLOCK_ENTRIES = 340
BLOCKS_A_WRITE = 64
BLOCKS_A_READ = 16
"""Blocks read at once of each file that is merged."""
SYNC_BLOCKS = 256
"""Blocks written between two syncs of the file: the log's own syncs wait for its unsynced bytes."""

_GUESSES = 4
"""Estimates before the search halves the rest: one hash may have many entries, and estimates would advance block by
block."""

_WHOSE = struct.Struct("<8s16sQI")
_CONTENT = struct.Struct("<IQIIqq")
_SEED = struct.Struct("<16sQI")
_STRETCH = struct.Struct("<II")
_ENTRY = struct.Struct("<QI")
_HASHES = 1 << 64


class Family(NamedTuple):
    """Kind of term that a file holds: ids or keys. `number` is in its header."""

    name: str
    number: int
    suffix: str


ID, KEY = Family("id", 1, ".mid"), Family("key", 2, ".key")
FAMILIES = {family.name: family for family in (ID, KEY)}


class Title(NamedTuple):
    """Identity of a lookup file: what its header and the checksums of its blocks must match."""

    path: str
    whose: bytes
    """The header's first fields: kind of file, log, segment, family."""
    state: tuple[int, int]
    """For a segment: address and checksum of its last batch. For a partial index: the addresses it covers."""
    seed: bytes
    outlives: bool
    """False for a partial index: no other process uses it, so it is not synced and its name marks it as temporary."""


class Summary(NamedTuple):
    """Contents of a file's header. Times are those of the oldest and newest message that it covers."""

    blocks: int
    entries: int
    oldest_ms: int
    newest_ms: int


class Sorted(Protocol):
    """Sorted entries of a TermCollector or a Merger."""

    def blocks(self, first: int, count: int, seed: bytes, number: int) -> bytes: ...


def lookup_path(directory: str, base: int, family: Family) -> str:
    """Path of the segment's file of that family."""
    return f"{directory}/{segment_name(base).removesuffix('.seg')}{family.suffix}"


def file_title(directory: str, log_id: bytes, base: int, family: Family, index: IndexHeader) -> Title:
    """Title of a sealed segment's lookup file; `index` says which state of the segment."""
    whose, seed = _WHOSE.pack(MAGIC, log_id, base, family.number), _SEED.pack(log_id, base, family.number)
    return Title(lookup_path(directory, base, family), whose, (index.last_at, index.last_crc), seed, True)


def partial_title(directory: str, log_id: bytes, base: int, family: Family, from_at: int, end_at: int) -> Title:
    """Title of the partial index of a stretch of a segment."""
    path = f"{lookup_path(directory, base, family)}.{from_at}-{end_at}.tmp"
    whose, seed = _WHOSE.pack(RUN_MAGIC, log_id, base, family.number), _SEED.pack(log_id, base, family.number)
    return Title(path, whose, (from_at, end_at), seed + _STRETCH.pack(from_at, end_at), False)


def entries_of(block: bytes) -> bytes:
    """A block's entries, packed."""
    return block[8 : 8 + int.from_bytes(block[4:8], "little") * _ENTRY.size]


class LookupFileWriter:
    """Writes one file. One that outlives the process has another name until it is whole and synced.

    `close()` it always.
    """

    def __init__(self, env: Env, directory: str, title: Title) -> None:
        self._env, self._directory, self._title = env, directory, title
        self._making = title.path + ".tmp" if title.outlives else title.path
        self._blocks = self._entries = 0
        self._file: File | None = env.open(self._making, create=True)

    @property
    def size_bytes(self) -> int:
        """Size of the finished file."""
        return BLOCK * (1 + self._blocks)

    def add(self, entries: Sorted, count: int) -> Iterator[int]:
        """Write `count` more entries, sorted and after all before; yields bytes written."""
        for first in range(0, count, BLOCKS_A_WRITE * BLOCK_ENTRIES):
            data = entries.blocks(first, BLOCKS_A_WRITE, self._title.seed, self._blocks + 1)
            self._write(data, BLOCK * (1 + self._blocks))
            before, self._blocks = self._blocks, self._blocks + len(data) // BLOCK
            if before // SYNC_BLOCKS != self._blocks // SYNC_BLOCKS:
                self._opened.sync()
            yield len(data)
        self._entries += count

    def finish(self, oldest_ms: int, newest_ms: int) -> None:
        """Write the header; sync and name a file that outlives the process. Blocks."""
        content = _CONTENT.pack(self._blocks, self._entries, *self._title.state, oldest_ms, newest_ms)
        head = (self._title.whose + content).ljust(BLOCK - 4, b"\0")
        self._write(head + crc32c(head).to_bytes(4, "little"), 0)
        if self._title.outlives:
            self._opened.sync()
            self._env.rename(self._making, self._title.path)
        self._opened.close()
        self._file = None
        if self._title.outlives:
            self._env.sync_directory(self._directory)

    def close(self) -> None:
        """Remove a file that was not finished."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._env.unlink(self._making)

    @property
    def _opened(self) -> File:
        assert self._file is not None
        return self._file

    def _write(self, data: bytes, at: int) -> None:
        left = memoryview(data)
        while left.nbytes:
            taken = self._opened.write_at(left, at)
            left, at = left[taken:], at + taken


class LookupFile:
    """An open lookup file. `close()` it.

    Args:
        title: identity that the file must have, for the segment as it is now.
    Raises:
        CorruptionError: it is missing, damaged, of another segment, or of an earlier state of this one.
    """

    def __init__(self, env: Env, title: Title) -> None:
        self.path, self._seed = title.path, title.seed
        try:
            self._file = env.open(self.path)
        except FileNotFoundError:
            raise CorruptionError(self.path, 0, 0, "the lookup file is missing") from None
        try:
            self.summary = self._header(title)
        except (CorruptionError, OSError):
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def addresses(self, hashed: int, from_at: int = 0) -> Iterator[int]:
        """Ascending addresses of the batches with that hash, from an address on.

        Raises CorruptionError when a block does not verify.
        """
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

    def packed(self, number: int, count: int = 1) -> bytes:
        """The entries of `count` blocks from that one on, packed as in the file. Raises CorruptionError."""
        entries, verified = unpacked_blocks(self._read(number, count), self._seed, number)
        if verified < count:
            bad = number + verified
            raise CorruptionError(self.path, bad * BLOCK, BLOCK, f"block {bad} does not verify")
        return entries

    def _find(self, wanted: tuple[int, int]) -> tuple[int, list[tuple[int, int]]]:
        """First block whose last entry is not below the wanted one, or no entries."""
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

    def _header(self, title: Title) -> Summary:
        data = self._read(0)
        if len(data) < BLOCK or crc32c(data[:-4]).to_bytes(4, "little") != data[-4:]:
            raise CorruptionError(self.path, 0, len(data), "its header does not verify")
        if data[: _WHOSE.size] != title.whose:
            raise CorruptionError(self.path, 0, len(data), "it belongs to another segment")
        blocks, entries, *state, oldest_ms, newest_ms = _CONTENT.unpack_from(data, _WHOSE.size)
        if tuple(state) != title.state:
            raise CorruptionError(self.path, 0, len(data), "it belongs to an earlier state of its segment")
        if self._file.size() != BLOCK * (1 + blocks):
            raise CorruptionError(self.path, 0, self._file.size(), "it is not as long as its header says")
        return Summary(blocks, entries, oldest_ms, newest_ms)

    def _read(self, number: int, count: int = 1) -> bytes:
        try:
            return self._file.read_at(count * BLOCK, number * BLOCK)
        except OSError as error:
            raise CorruptionError(self.path, number * BLOCK, BLOCK, f"it cannot be read: {error.strerror}") from error
