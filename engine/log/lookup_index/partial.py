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
    NameFile,
    NameFileWriter,
    Title,
    run_title,
)
from engine.log.lookup_index.segment_read import read_names
from engine.log.native import BatchReader, Collector, Merger
from engine.log.segment.side_files import SideFiles
from engine.log.segment.walk import Stretch

logger = logging.getLogger(__name__)

RUN_BYTES = 8 << 20
"""Of the segment, a run. More makes each look-up read more behind the last run, less makes more runs, each of which is asked."""

RUNS_MERGED = 16
"""So many of one size become one. More lets look-ups ask more of them, less writes the same names more often."""

NEVER_MS = 1 << 62

Key = tuple[int, Family]
"""A segment's base, and which of its files."""


class Run(NamedTuple):
    """The names of the batches between two addresses. `pieces`: of how many stretches of RUN_BYTES."""

    from_at: int
    end_at: int
    pieces: int
    oldest_ms: int
    newest_ms: int


class Runs:
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
        self._runs: dict[Key, tuple[Run, ...]] = {}
        self._suspects: deque[tuple[Key, Run]] = deque()
        self.run_bytes, self.runs_merged = RUN_BYTES, RUNS_MERGED

    def covering(self, base: int, family: Family, at: int) -> Run | None:
        """The run that says what is in the segment from the address on. In any thread."""
        return next((run for run in self.of(base, family) if run.from_at <= at < run.end_at), None)

    def of(self, base: int, family: Family) -> tuple[Run, ...]:
        """The segment's, in order. In any thread."""
        return self._runs.get((base, family), ())

    def title(self, base: int, family: Family, run: Run) -> Title:
        """By which its file is opened. In any thread."""
        return run_title(self._directory, self._log_id, base, family, run.from_at, run.end_at)

    def suspect(self, base: int, family: Family, run: Run, error: CorruptionError) -> bool:
        """Somebody has found its file missing or damaged. False when it has only been merged or removed meanwhile. In any thread."""
        if run not in self.of(base, family):
            return False
        logger.error("%s; it is made again from its segment", error)
        self._suspects.append(((base, family), run))
        return True

    def drop_suspects(self) -> None:
        """Forget what was found damaged, and what lies behind it in its segment; it is made again."""
        while self._suspects:
            key, damaged = self._suspects.popleft()
            runs = self.of(*key)
            if damaged in runs:
                self._counts.damage += 1
                self._replace(key, runs[: runs.index(damaged)])

    def forget(self, base: int, family: Family) -> None:
        """Remove the segment's: its file is made, or it has gone."""
        self._replace((base, family), ())

    def clear(self) -> None:
        """Remove all."""
        for key in list(self._runs):
            self._replace(key, ())

    def behind(self, family: Family) -> int:
        """How many runs of the open segment are to be made."""
        place = self._open_segment()
        return 0 if place is None else (place[1] - self._covered(place[0], family)) // self.run_bytes

    def make(self, family: Family, entries_max: int) -> Iterator[int]:
        """Make the next run of the open segment, if enough has come, and one of many small ones; yields bytes read or written."""
        place = self._open_segment()
        if place is None or place[1] - self._covered(place[0], family) < self.run_bytes:
            return
        yield from self._make_next((place[0], family), place[1], entries_max)

    def complete(self, key: Key, end_at: int, entries_max: int) -> Iterator[int]:
        """Make all that are missing up to a sealed segment's end; yields bytes read or written."""
        while self._covered(*key) < end_at:
            yield from self._make_next(key, end_at, entries_max)

    def merge(self, key: Key, runs: tuple[Run, ...], writer: NameFileWriter) -> Iterator[int]:
        """Write what the runs have into one file; yields bytes written. Raises CorruptionError when one is suspect now."""
        merger = Merger([self._blocks(key, run) for run in runs])
        while count := merger.fill(BLOCKS_A_WRITE * BLOCK_ENTRIES):
            yield from writer.add(merger, count)

    def _make_next(self, key: Key, end_at: int, entries_max: int) -> Iterator[int]:
        """A run behind the last one, of about RUN_BYTES and not beyond an address; then one in place of many."""
        from_at = at = self._covered(*key)
        collector = Collector(self._log_id, key[0], key[1].number, entries_max)
        collector.begin(0)
        for stretch in self._read(key[0], from_at, end_at, collector):
            at = stretch.end
            yield at - stretch.at
            if at - from_at >= self.run_bytes:
                break
        else:
            at = end_at  # bytes that do not verify, if there are any left

        def in_passes(writer: NameFileWriter) -> Iterator[int]:
            count, low = collector.finish()
            yield from writer.add(collector, count)
            while low is not None:
                collector.begin(low)
                for stretch in self._read(key[0], from_at, at, collector):
                    yield stretch.end - stretch.at
                count, low = collector.finish()
                yield from writer.add(collector, count)

        run = Run(from_at, at, 1, collector.oldest_ms, collector.newest_ms)
        yield from self._write(key, run, in_passes)
        self._replace(key, (*self.of(*key), run))
        last = self.of(*key)[-self.runs_merged :]
        if len(last) == self.runs_merged and len({each.pieces for each in last}) == 1:
            merged = merged_run(last)
            yield from self._write(key, merged, lambda writer: self.merge(key, last, writer))
            self._replace(key, (*self.of(*key)[: -len(last)], merged))

    def _read(self, base: int, at: int, end_at: int, collector: Collector) -> Iterator[Stretch]:
        """Give the collector the segment's batches between two addresses."""
        file = self._env.open(f"{self._directory}/{segment_name(base)}")
        try:
            for stretch in read_names(self._batches, file, base, end_at, collector, at):
                self._counts.read_bytes += stretch.end - stretch.at
                yield stretch
        finally:
            file.close()

    def _blocks(self, key: Key, run: Run) -> Iterator[bytes]:
        try:
            names = NameFile(self._env, self.title(*key, run))
            try:
                for number in range(1, names.summary.blocks + 1):
                    yield names.packed(number)
            finally:
                names.close()
        except CorruptionError as error:
            self.suspect(*key, run, error)
            raise

    def _write(self, key: Key, run: Run, fill: Callable[[NameFileWriter], Iterator[int]]) -> Iterator[int]:
        writer = NameFileWriter(self._env, self._directory, self.title(*key, run))
        try:
            yield from fill(writer)
            writer.finish(run.oldest_ms, run.newest_ms)
        finally:
            writer.close()
        self._side.weigh(self.title(*key, run).path)
        self._counts.runs += 1
        self._counts.written_bytes += writer.size_bytes

    def _covered(self, base: int, family: Family) -> int:
        runs = self.of(base, family)
        return runs[-1].end_at if runs else SEGMENT_HEADER_SIZE

    def _replace(self, key: Key, runs: tuple[Run, ...]) -> None:
        """Searches see the old ones or the new ones, and whoever finds a file gone looks here again."""
        gone = [run for run in self.of(*key) if run not in runs]
        if runs:
            self._runs[key] = runs
        else:
            self._runs.pop(key, None)
        for run in gone:
            path = self.title(*key, run).path
            with suppress(OSError):  # the next start removes it
                self._env.unlink(path)
            self._side.weigh(path)


def merged_run(runs: tuple[Run, ...]) -> Run:
    """One in place of neighbours."""
    return Run(runs[0].from_at, runs[-1].end_at, sum(run.pieces for run in runs), *span_of(runs))


def span_of(runs: tuple[Run, ...]) -> tuple[int, int]:
    """When the oldest and the newest message in them were stored, ms."""
    return (
        min((run.oldest_ms for run in runs), default=NEVER_MS),
        max((run.newest_ms for run in runs), default=-NEVER_MS),
    )
