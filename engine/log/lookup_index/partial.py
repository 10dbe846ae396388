"""Runs: files of names of stretches of a segment, so that a look-up in the one that is being written reads only what came since the last.

They live as long as the process: none is synced, none is trusted by another start. Those of one segment and family cover it from its first
batch on without a gap, until the file of the sealed segment is merged from them.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from engine.env.base import Env
from engine.errors import CorruptionError
from engine.log.format import SEGMENT_HEADER_SIZE, segment_name
from engine.log.lookup_index.counts import MakerCounts
from engine.log.lookup_index.lookup_file import (
    BLOCK_ENTRIES,
    BLOCKS_A_WRITE,
    Family,
    LookupFile,
    LookupFileWriter,
    Title,
    partial_title,
)
from engine.log.lookup_index.native import Merger, TermCollector
from engine.log.lookup_index.segment_read import feed_batches
from engine.log.segment.native import BatchReader
from engine.log.segment.side_files import SideFiles
from engine.log.segment.window_scan import Stretch

logger = logging.getLogger(__name__)

PARTIAL_BYTES = 8 << 20
"""Of the segment, a partial. More makes each look-up read more behind the last partial, less makes more partials, each of which is asked."""

PARTIALS_MERGED = 16
"""So many of one size become one. More lets look-ups ask more of them, less writes the same names more often."""

NEVER_MS = 1 << 62

Key = tuple[int, Family]
"""A segment's base, and which of its files."""


class PartialIndex(NamedTuple):
    """The names of the batches between two addresses. `pieces`: of how many stretches of PARTIAL_BYTES."""

    from_at: int
    end_at: int
    pieces: int
    oldest_ms: int
    newest_ms: int


class PartialIndexes:
    """Those of all segments that have no files yet. Belongs to the thread that makes them; what says so may be called in any.

    Args:
        open_segment: base of the segment that is being written and the address behind its last whole batch; None when there is none.
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
        """The run that says what is in the segment from the address on. In any thread."""
        return next((partial for partial in self.of(base, family) if partial.from_at <= at < partial.end_at), None)

    def of(self, base: int, family: Family) -> tuple[PartialIndex, ...]:
        """The segment's, in order. In any thread."""
        return self._partials.get((base, family), ())

    def title(self, base: int, family: Family, partial: PartialIndex) -> Title:
        """By which its file is opened. In any thread."""
        return partial_title(self._directory, self._log_id, base, family, partial.from_at, partial.end_at)

    def suspect(self, base: int, family: Family, partial: PartialIndex, error: CorruptionError) -> bool:
        """Somebody has found its file missing or damaged. False when it has only been merged or removed meanwhile. In any thread."""
        if partial not in self.of(base, family):
            return False
        logger.error("%s; it is made again from its segment", error)
        self._suspects.append(((base, family), partial))
        return True

    def drop_suspects(self) -> None:
        """Forget what was found damaged, and what lies behind it in its segment; it is made again."""
        while self._suspects:
            key, damaged = self._suspects.popleft()
            partials = self.of(*key)
            if damaged in partials:
                self._counts.damage += 1
                self._replace(key, partials[: partials.index(damaged)])

    def forget(self, base: int, family: Family) -> None:
        """Remove the segment's: its file is made, or it has gone."""
        self._replace((base, family), ())

    def clear(self) -> None:
        """Remove all."""
        for key in list(self._partials):
            self._replace(key, ())

    def behind(self, family: Family) -> int:
        """How many partials of the open segment are to be made."""
        place = self._open_segment()
        return 0 if place is None else (place[1] - self._covered(place[0], family)) // self.partial_bytes

    def make(self, family: Family, entries_max: int) -> Iterator[int]:
        """Make the next run of the open segment, if enough has come, and one of many small ones; yields bytes read or written."""
        place = self._open_segment()
        if place is None or place[1] - self._covered(place[0], family) < self.partial_bytes:
            return
        yield from self._make_next((place[0], family), place[1], entries_max)

    def complete(self, key: Key, end_at: int, entries_max: int) -> Iterator[int]:
        """Make all that are missing up to a sealed segment's end; yields bytes read or written."""
        while self._covered(*key) < end_at:
            yield from self._make_next(key, end_at, entries_max)

    def merge(self, key: Key, partials: tuple[PartialIndex, ...], writer: LookupFileWriter) -> Iterator[int]:
        """Write what the partials have into one file; yields bytes written. Raises CorruptionError when one is suspect now."""
        merger = Merger([self._blocks(key, partial) for partial in partials])
        while count := merger.fill(BLOCKS_A_WRITE * BLOCK_ENTRIES):
            yield from writer.add(merger, count)

    def _make_next(self, key: Key, end_at: int, entries_max: int) -> Iterator[int]:
        """A run behind the last one, of about PARTIAL_BYTES and not beyond an address; then one in place of many."""
        from_at = at = self._covered(*key)
        collector = TermCollector(self._log_id, key[0], key[1].number, entries_max)
        collector.begin(0)
        for stretch in self._read(key[0], from_at, end_at, collector):
            at = stretch.end
            yield at - stretch.at
            if at - from_at >= self.partial_bytes:
                break
        else:
            at = end_at  # bytes that do not verify, if there are any left

        def in_passes(writer: LookupFileWriter) -> Iterator[int]:
            count, low = collector.finish()
            yield from writer.add(collector, count)
            while low is not None:
                collector.begin(low)
                for stretch in self._read(key[0], from_at, at, collector):
                    yield stretch.end - stretch.at
                count, low = collector.finish()
                yield from writer.add(collector, count)

        partial = PartialIndex(from_at, at, 1, collector.oldest_ms, collector.newest_ms)
        yield from self._write(key, partial, in_passes)
        self._replace(key, (*self.of(*key), partial))
        last = self.of(*key)[-self.partials_merged :]
        if len(last) == self.partials_merged and len({each.pieces for each in last}) == 1:
            merged = merged_partial(last)
            yield from self._write(key, merged, lambda writer: self.merge(key, last, writer))
            self._replace(key, (*self.of(*key)[: -len(last)], merged))

    def _read(self, base: int, at: int, end_at: int, collector: TermCollector) -> Iterator[Stretch]:
        """Give the collector the segment's batches between two addresses."""
        file = self._env.open(f"{self._directory}/{segment_name(base)}")
        try:
            for stretch in feed_batches(self._batches, file, base, end_at, collector, at):
                self._counts.read_bytes += stretch.end - stretch.at
                yield stretch
        finally:
            file.close()

    def _blocks(self, key: Key, partial: PartialIndex) -> Iterator[bytes]:
        try:
            names = LookupFile(self._env, self.title(*key, partial))
            try:
                for number in range(1, names.summary.blocks + 1):
                    yield names.packed(number)
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
        """Searches see the old ones or the new ones, and whoever finds a file gone looks here again."""
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
    """One in place of neighbours."""
    return PartialIndex(
        partials[0].from_at, partials[-1].end_at, sum(partial.pieces for partial in partials), *span_of(partials)
    )


def span_of(partials: tuple[PartialIndex, ...]) -> tuple[int, int]:
    """When the oldest and the newest message in them were stored, ms."""
    return (
        min((partial.oldest_ms for partial in partials), default=NEVER_MS),
        max((partial.newest_ms for partial in partials), default=-NEVER_MS),
    )
