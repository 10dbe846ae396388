"""Makes lookup files of sealed segments in a thread, at a set pace, the newest segment first.

It is not on the path of a message, and nothing depends on it: a segment without its lookup file is searched by
reading it. A missing or damaged file is rebuilt from the segment. Partial indexes of the active segment come first.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress

from common.limited_log import LimitedLog
from engine.env.base import Env
from engine.errors import CorruptionError
from engine.log.format import segment_name
from engine.log.lookup_index.counts import MakerCounts
from engine.log.lookup_index.lookup_file import FAMILIES, Family, LookupFile, LookupFileWriter, file_title, lookup_path
from engine.log.lookup_index.partial import PartialIndexes, span_of
from engine.log.segment.index_file import read_index_header
from engine.log.segment.side_files import SideFiles

limited = LimitedLog(logging.getLogger(__name__))

ENTRIES_MAX = 2 << 20
"""Entries per pass over a stretch of a segment, 24 bytes of memory each. More only when one term alone has more."""

FASTER_MAX = 8
"""Largest factor on the pace when many files wait."""

REST = 15
"""Least pause after a step, as a multiple of the step: at most a sixteenth of a core, however fast the pace. On a machine
that is full the log goes first: more than some 250,000 messages of 128 bytes per second leave files for later. Until then
a look-up reads what has none, about a GiB in 0.1 to 0.5 s."""

IDLE_S = 1.0
AFTER_FAULT_S = 60.0

Work = tuple[int, Family]
"""A segment's base, and which of its files."""


class LookupFileMaker:
    """Makes lookup files. Call `steps()` in a thread of its own; `has` and `suspect` may be called in any thread.

    Args:
        sealed: returns the bases of the sealed segments as of now.
        families: families to make; files of others are removed.
        bytes_per_s: pace at which a segment is read, multiplied by the number of files that wait (up to 8). More makes
            files sooner, less leaves more of the disk and the processor to the log.
        has_room: returns whether the disk can take more.
        clock: seconds; only differences count.
        open_segment: see PartialIndexes.
        side: notified of each file that comes or goes.
    """

    def __init__(
        self, env: Env, directory: str, log_id: bytes, sealed: Callable[[], set[int]], families: Iterable[Family],
        bytes_per_s: int, clock: Callable[[], float], has_room: Callable[[], bool] = lambda: True,
        open_segment: Callable[[], tuple[int, int] | None] = lambda: None, side: SideFiles | None = None,
    ) -> None:  # fmt: skip
        self._env, self._directory, self._log_id, self._sealed = env, directory, log_id, sealed
        self._families, self._pace, self._has_room, self._clock = tuple(families), bytes_per_s, has_room, clock
        self.counts = MakerCounts()
        self._side = side or SideFiles(env)
        self.partials = PartialIndexes(env, directory, log_id, open_segment, self.counts, self._side)
        self.entries_max = ENTRIES_MAX
        self._suspects: deque[Work] = deque()
        self._seen: set[int] = set()
        self._waiting: list[Work] = []
        self._there = self._listed()
        self._partials_not_before = -math.inf

    @property
    def waiting(self) -> int:
        """Number of files to make."""
        return len(self._waiting) + len(self._suspects)

    def has(self, base: int, family: Family) -> bool:
        """Whether the file is made and not known to be damaged."""
        return (base, family) in self._there

    def suspect(self, base: int, family: Family, error: CorruptionError) -> None:
        """Report the file missing or damaged: it is no longer used, and is rebuilt."""
        if self.has(base, family) and self._env.exists(self._segment_path(base)):
            self.counts.damage += 1
            limited.error("%s; it is rebuilt from its segment", error)
            self._suspects.append((base, family))
        self._there.discard((base, family))

    def check(self, base: int) -> Iterator[int]:
        """Verify the segment's lookup files, as far as they are made, for the scrub; yields bytes read.

        A damaged file is made again.
        """
        for family in FAMILIES.values():
            if not self.has(base, family):
                continue
            try:
                index = read_index_header(self._env, self._directory, base)
                file = LookupFile(self._env, file_title(self._directory, self._log_id, base, family, index))
                try:
                    yield from file.check()
                finally:
                    file.close()
            except CorruptionError as error:
                if error.file.endswith(family.suffix):
                    self.suspect(base, family, error)

    def steps(self) -> Generator[float, None, None]:
        """Do a small piece of work at a time and yield how many seconds to wait before the next. Never ends."""
        self._remove_unwanted()
        while True:
            self._look()
            work = None
            if self._has_room():
                yield from self._paced(self._catch_up())
                work = self._next()
            if work is None:
                yield IDLE_S
                continue
            try:
                yield from self._paced(self._beside_partials(self._make(*work)))
            except (OSError, CorruptionError) as error:
                # Retention removes the segment's files one after the other.
                if self._env.exists(self._segment_path(work[0])):
                    limited.error("file=%s: not made, retrying: %s", lookup_path(self._directory, *work), error)
                    self._waiting.insert(0, work)
                    yield AFTER_FAULT_S

    def close(self) -> None:
        """Remove the partial indexes, which no other process can use. Not while a thread calls `steps()`."""
        self.partials.clear()

    def _listed(self) -> set[Work]:
        """The lookup files in the directory."""
        found = set()
        for name in self._env.list(self._directory):
            for family in FAMILIES.values():
                stem = name.removesuffix(family.suffix)
                if stem != name and stem.isdigit():
                    found.add((int(stem), family))
        return found

    def _remove_unwanted(self) -> None:
        for base, family in [work for work in tuple(self._there) if work[1] not in self._families]:
            self._there.discard((base, family))
            self._unlink(lookup_path(self._directory, base, family))

    def _look(self) -> None:
        """Take note of segments that were sealed or deleted."""
        self.partials.drop_suspects()
        sealed = self._sealed()
        if sealed == self._seen:
            return
        gone, fresh = self._seen - sealed, sealed - self._seen
        self._there.difference_update([work for work in tuple(self._there) if work[0] in gone])
        for base in gone:
            for family in self._families:
                self.partials.forget(base, family)
        wanted = [(base, family) for base in sorted(fresh) for family in self._families]
        self._waiting = [work for work in (*self._waiting, *wanted) if work[0] in sealed and work not in self._there]
        self._seen = set(sealed)

    def _next(self) -> Work | None:
        """The next file to make: damaged ones first, then the newest segment's."""
        while self._suspects:
            work = self._suspects.popleft()
            self._unlink(lookup_path(self._directory, *work))
            if work[0] in self._sealed():
                return work
        return self._waiting.pop() if self._waiting else None

    def _catch_up(self) -> Iterator[int]:
        """Make the partial indexes that are due; yields bytes read or written."""
        while self._clock() >= self._partials_not_before and any(map(self.partials.due, self._families)):
            try:
                yield from self.partials.make(self._families, self.entries_max)
            except CorruptionError:
                self.partials.drop_suspects()
            except OSError as error:
                limited.error("directory=%s: partial index not made, retrying: %s", self._directory, error)
                self._partials_not_before = self._clock() + AFTER_FAULT_S

    def _beside_partials(self, work: Iterator[int]) -> Iterator[int]:
        """Do the work, and between any two steps the due work for the active segment."""
        for size in work:
            yield size
            yield from self._catch_up()

    def _paced(self, work: Iterator[int]) -> Iterator[float]:
        """Do the work at the pace, faster when more of it waits."""
        began = self._clock()
        for size in work:
            waiting = len(self._waiting) + sum(self.partials.due(family) for family in self._families)
            yield max(size / (self._pace * min(1 + waiting, FASTER_MAX)), REST * (self._clock() - began))
            began = self._clock()

    def _make(self, base: int, family: Family) -> Iterator[int]:
        """Make one file from partial indexes that cover its segment; yields bytes read or written.

        Those of the segment's other missing files are made with them, from the same bytes.
        """
        work = (base, family)
        index = read_index_header(self._env, self._directory, base)
        missing = [each for each in self._families if each != family and not self.has(base, each)]
        yield from self.partials.complete(base, [family, *missing], index.end_at, self.entries_max)
        partials = self.partials.of(*work)
        title = file_title(self._directory, self._log_id, base, family, index)
        writer = LookupFileWriter(self._env, self._directory, title)
        try:
            yield from self.partials.merge(work, partials, writer)
            writer.finish(*span_of(partials))
        finally:
            writer.close()
        self.counts.files += 1
        self.counts.written_bytes += writer.size_bytes
        self._side.weigh(title.path)
        self._there.add(work)
        self.partials.forget(*work)
        if not self._env.exists(self._segment_path(base)):
            with suppress(OSError):
                self._unlink(title.path)

    def _unlink(self, path: str) -> None:
        self._env.unlink(path)
        self._side.weigh(path)

    def _segment_path(self, base: int) -> str:
        return f"{self._directory}/{segment_name(base)}"
