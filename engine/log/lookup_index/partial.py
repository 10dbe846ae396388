"""Partial indexes: lookup files of stretches of the active segment, so that a look-up reads only the bytes after them.

They live as long as the process: they are not synced, and another process does not trust them. Those of one segment and
family cover it from its first batch on without a gap, until the lookup file of the sealed segment is merged from them.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from common.limited_log import LimitedLog
from engine.env.base import Env
from engine.errors import CorruptionError
from engine.log.format import SEGMENT_HEADER_SIZE, segment_name
from engine.log.lookup_index.counts import MakerCounts
from engine.log.lookup_index.lookup_file import (
    BLOCK_ENTRIES,
    BLOCKS_A_READ,
    BLOCKS_A_WRITE,
    Family,
    LookupFile,
    LookupFileWriter,
    Title,
    partial_title,
)
from engine.log.lookup_index.native import Merger, SharedScan, TermCollector
from engine.log.lookup_index.segment_read import feed_batches
from engine.log.segment.native import BatchReader
from engine.log.segment.side_files import SideFiles
from engine.log.segment.window_scan import Stretch

limited = LimitedLog(logging.getLogger(__name__))

PARTIAL_BYTES = 8 << 20
"""Bytes of the segment per partial index. More makes each look-up read more after the last one, less makes more of
them to search."""

PARTIALS_MERGED = 32
"""Number of partial indexes of one size that are merged into one. More leaves more of them to search, less writes the
same entries more often: with 32 a segment of 256 MiB has its entries written twice, and not three times."""

NEVER_MS = 1 << 62

Key = tuple[int, Family]
"""A segment's base, and which of its files."""


class PartialIndex(NamedTuple):
    """The lookup entries of the batches between two addresses. `pieces`: number of stretches of PARTIAL_BYTES in it."""

    from_at: int
    end_at: int
    pieces: int
    oldest_ms: int
    newest_ms: int


class PartialIndexes:
    """Partial indexes of all segments without lookup files. Belongs to the thread that makes them, except where noted.

    Args:
        open_segment: returns the active segment's base and the address after its last whole batch; None while the log
            rolls.
    """

    def __init__(
        self, env: Env, directory: str, log_id: bytes, open_segment: Callable[[], tuple[int, int] | None],
        counts: MakerCounts, side: SideFiles,
    ) -> None:  # fmt: skip
        self._env, self._directory, self._log_id = env, directory, log_id
        self._open_segment, self._counts, self._side = open_segment, counts, side
        self._batches = BatchReader(log_id)
        self._partials: dict[Key, tuple[PartialIndex, ...]] = {}
        self._suspects: deque[tuple[Key, PartialIndex]] = deque()
        self.partial_bytes, self.partials_merged = PARTIAL_BYTES, PARTIALS_MERGED

    def covering(self, base: int, family: Family, at: int) -> PartialIndex | None:
        """The partial index that covers the address. In any thread."""
        return next((partial for partial in self.of(base, family) if partial.from_at <= at < partial.end_at), None)

    def of(self, base: int, family: Family) -> tuple[PartialIndex, ...]:
        """The segment's partial indexes, in order. In any thread."""
        return self._partials.get((base, family), ())

    def title(self, base: int, family: Family, partial: PartialIndex) -> Title:
        """Title by which its file is opened. In any thread."""
        return partial_title(self._directory, self._log_id, base, family, partial.from_at, partial.end_at)

    def suspect(self, base: int, family: Family, partial: PartialIndex, error: CorruptionError) -> bool:
        """Report its file missing or damaged. In any thread.

        Returns False when it was only merged or removed meanwhile.
        """
        if partial not in self.of(base, family):
            return False
        limited.error("%s; it is rebuilt from its segment", error)
        self._suspects.append(((base, family), partial))
        return True

    def drop_suspects(self) -> None:
        """Forget partial indexes reported damaged and those after them in their segments; all are rebuilt."""
        while self._suspects:
            key, damaged = self._suspects.popleft()
            partials = self.of(*key)
            if damaged in partials:
                self._counts.damage += 1
                self._replace(key, partials[: partials.index(damaged)])

    def forget(self, base: int, family: Family) -> None:
        """Remove the partial indexes of a segment: its lookup file is made, or the segment was deleted."""
        self._replace((base, family), ())

    def clear(self) -> None:
        """Remove all partial indexes."""
        for key in list(self._partials):
            self._replace(key, ())

    def due(self, family: Family) -> int:
        """Number of partial indexes of the active segment that are due."""
        place = self._open_segment()
        return 0 if place is None else (place[1] - self._covered(place[0], family)) // self.partial_bytes

    def make(self, families: Iterable[Family], entries_max: int) -> Iterator[int]:
        """Make the next partial index of the active segment, where one is due, and merge small ones; yields bytes read
        or written.
        """
        place = self._open_segment()
        if place is None:
            return
        keys = [(place[0], family) for family in families]
        if any(place[1] - self._covered(*key) >= self.partial_bytes for key in keys):
            yield from self._make_next(keys, place[1], entries_max)

    def complete(self, base: int, families: Iterable[Family], end_at: int, entries_max: int) -> Iterator[int]:
        """Make the missing partial indexes up to a sealed segment's end; yields bytes read or written."""
        keys = [(base, family) for family in families]
        while any(self._covered(*key) < end_at for key in keys):
            yield from self._make_next(keys, end_at, entries_max)

    def merge(self, key: Key, partials: tuple[PartialIndex, ...], writer: LookupFileWriter) -> Iterator[int]:
        """Merge partial indexes into one file; yields bytes written.

        Raises CorruptionError when one of them is damaged.
        """
        merger = Merger([self._entries(key, partial) for partial in partials])
        while count := merger.fill(BLOCKS_A_WRITE * BLOCK_ENTRIES):
            yield from writer.add(merger, count)

    def _make_next(self, keys: list[Key], end_at: int, entries_max: int) -> Iterator[int]:
        """Make the next partial index, of about PARTIAL_BYTES and not beyond an address, of those of a segment's families
        that are covered least; then merge small ones. The bytes are read and verified once for all of them.
        """
        base, covered = keys[0][0], {key: self._covered(*key) for key in keys}
        from_at = at = min(covered.values())
        # After an error one may be behind the others: it ends where they do, and goes on with them from there.
        end_at = min([end_at, *(each for each in covered.values() if each > from_at)])
        collectors = {
            key: TermCollector(self._log_id, base, key[1].number, entries_max)
            for key in keys
            if covered[key] == from_at
        }
        for collector in collectors.values():
            collector.begin(0)
        for stretch in self._read(base, from_at, end_at, SharedScan(self._log_id, base, *collectors.values())):
            at = stretch.end
            yield at - stretch.at
            if at - from_at >= self.partial_bytes:
                break
        else:
            at = end_at  # the rest, if any, does not verify
        for key, collector in collectors.items():
            yield from self._add(key, collector, from_at, at)

    def _add(self, key: Key, collector: TermCollector, from_at: int, end_at: int) -> Iterator[int]:
        """Write a partial index that its collector has read once, and merge it with smaller ones."""

        def in_passes(writer: LookupFileWriter) -> Iterator[int]:
            count, low = collector.finish()
            yield from writer.add(collector, count)
            while low is not None:
                collector.begin(low)
                for stretch in self._read(key[0], from_at, end_at, collector):
                    yield stretch.end - stretch.at
                count, low = collector.finish()
                yield from writer.add(collector, count)

        partial = PartialIndex(from_at, end_at, 1, collector.oldest_ms, collector.newest_ms)
        yield from self._write(key, partial, in_passes)
        self._replace(key, (*self.of(*key), partial))
        last = self.of(*key)[-self.partials_merged :]
        if len(last) == self.partials_merged and len({each.pieces for each in last}) == 1:
            merged = merged_partial(last)
            yield from self._write(key, merged, lambda writer: self.merge(key, last, writer))
            self._replace(key, (*self.of(*key)[: -len(last)], merged))

    def _read(self, base: int, at: int, end_at: int, taker: TermCollector | SharedScan) -> Iterator[Stretch]:
        """Feed the taker the segment's batches between two addresses."""
        file = self._env.open(f"{self._directory}/{segment_name(base)}")
        try:
            for stretch in feed_batches(self._batches, file, base, end_at, taker, at):
                self._counts.read_bytes += stretch.end - stretch.at
                yield stretch
        finally:
            file.close()

    def _entries(self, key: Key, partial: PartialIndex) -> Iterator[bytes]:
        try:
            names = LookupFile(self._env, self.title(*key, partial))
            try:
                blocks = names.summary.blocks
                for number in range(1, blocks + 1, BLOCKS_A_READ):
                    yield names.packed(number, min(BLOCKS_A_READ, blocks + 1 - number))
            finally:
                names.close()
        except CorruptionError as error:
            self.suspect(*key, partial, error)
            raise

    def _write(
        self, key: Key, partial: PartialIndex, fill: Callable[[LookupFileWriter], Iterator[int]]
    ) -> Iterator[int]:
        writer = LookupFileWriter(self._env, self._directory, self.title(*key, partial))
        try:
            yield from fill(writer)
            writer.finish(partial.oldest_ms, partial.newest_ms)
        finally:
            writer.close()
        self._side.weigh(self.title(*key, partial).path)
        self._counts.runs += 1
        self._counts.written_bytes += writer.size_bytes

    def _covered(self, base: int, family: Family) -> int:
        partials = self.of(base, family)
        return partials[-1].end_at if partials else SEGMENT_HEADER_SIZE

    def _replace(self, key: Key, partials: tuple[PartialIndex, ...]) -> None:
        """Replace the list at once: searches see the old one or the new one.

        A search that misses a file looks here again.
        """
        gone = [partial for partial in self.of(*key) if partial not in partials]
        if partials:
            self._partials[key] = partials
        else:
            self._partials.pop(key, None)
        for partial in gone:
            path = self.title(*key, partial).path
            with suppress(OSError):  # the next start removes it
                self._env.unlink(path)
            self._side.weigh(path)


def merged_partial(partials: tuple[PartialIndex, ...]) -> PartialIndex:
    """The partial index that replaces these neighbours, without its file."""
    return PartialIndex(
        partials[0].from_at, partials[-1].end_at, sum(partial.pieces for partial in partials), *span_of(partials)
    )


def span_of(partials: tuple[PartialIndex, ...]) -> tuple[int, int]:
    """Times in ms at which the oldest and the newest message in them were stored."""
    return (
        min((partial.oldest_ms for partial in partials), default=NEVER_MS),
        max((partial.newest_ms for partial in partials), default=-NEVER_MS),
    )
