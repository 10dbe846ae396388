"""The scrub: reads sealed segments repeatedly at a set pace, so that damage is known before a consumer meets it.

It runs in a thread of its own, in steps of a fraction of a window: the native scan holds the GIL, and the loop must not
be delayed. It changes nothing. What it finds is counted and logged; `penstock log verify` reports more.
"""

import logging
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Protocol

from common.limited_log import LimitedLog
from engine.env.base import Env, File
from engine.errors import CorruptionError
from engine.log.format import SEGMENT_HEADER_SIZE
from engine.log.segment.index_file import load_index
from engine.log.segment.native import BatchReader, SegmentIndex
from engine.log.segment.segment import Segment, open_segment
from engine.log.segment.suspects import SuspectSegments
from engine.log.segment.window_scan import Stretch, StretchKind, WindowScan

limited = LimitedLog(logging.getLogger(__name__))

STEP_BYTES = 128 << 10
IDLE_S = 60.0


@dataclass
class ScrubCounts:
    """Counts since the start; read by metrics, written by the scrub's thread alone."""

    bytes: int = 0
    segments: int = 0
    damage: int = 0
    rounds: int = 0


class SideFileCheck(Protocol):
    """Checks files beside a segment that this module does not know."""

    def check(self, base: int) -> Iterator[int]:
        """Verify the files beside the segment at `base`, in small steps; yields bytes read."""


class Scrub:
    """Reads one segment after the other, oldest first, then begins again.

    Args:
        bytes_per_s: pace. More finds damage earlier, less leaves more of the disk to the log.
        others: checks further files beside each segment.
        counts: to go on counting in.
        suspects: gets the segments that are damaged, or whose index file is.
    """

    def __init__(
        self, env: Env, directory: str, log_id: bytes, bytes_per_s: int, others: SideFileCheck | None = None,
        counts: ScrubCounts | None = None, suspects: SuspectSegments | None = None,
    ) -> None:  # fmt: skip
        self._env, self._directory, self._others = env, directory, others
        self._batches = BatchReader(log_id)
        self.bytes_per_s = bytes_per_s
        self.counts = counts or ScrubCounts()
        self._suspects = SuspectSegments() if suspects is None else suspects
        self._known: set[tuple[str, int]] = set()
        """SegmentDamage that was logged and counted already."""

    def steps(self) -> Generator[float, None, None]:
        """Do a small piece of work at a time and yield how many seconds to wait before the next. Never ends."""
        while True:
            for base in self._sealed():
                yield from self._paced(self._segment(base))
            self.counts.rounds += 1
            yield IDLE_S

    def _sealed(self) -> list[int]:
        """By their index files, which only sealed segments have."""
        names = self._env.list(self._directory)
        return [int(name[:-4]) for name in names if name.endswith(".idx") and name[:-4].isdigit()]

    def _paced(self, work: Iterator[int]) -> Iterator[float]:
        for size in work:
            self.counts.bytes += size
            yield size / self.bytes_per_s

    def _segment(self, base: int) -> Iterator[int]:
        """Check one segment; yields bytes read. A segment that retention deleted meanwhile is skipped."""
        try:
            segment = open_segment(self._env, self._directory, base)
        except FileNotFoundError:
            return
        except CorruptionError as error:
            self._found(error.file, base, SEGMENT_HEADER_SIZE, "the segment's header does not verify")
            return
        try:
            yield from self._batches_of(segment)
            yield self._index_of(segment)
            if self._others is not None:
                yield from self._others.check(base)
            self.counts.segments += 1
        finally:
            segment.close()

    def _batches_of(self, segment: Segment) -> Iterator[int]:
        # The index of each step is dropped: for a whole segment it would be another copy of its index file.
        scan = WindowScan(
            self._batches, segment.file, segment.base, SegmentIndex(segment.base, 0), window_bytes=STEP_BYTES
        )
        try:
            for stretch in scan.stretches():
                scan.go_on_with(SegmentIndex(segment.base, 0))
                if stretch.kind is not StretchKind.GOOD:
                    self._damaged(segment, stretch)
                _leave_cache(segment.file, stretch)
                yield stretch.end - stretch.at
        finally:
            scan.close()

    def _index_of(self, segment: Segment) -> int:
        """Verify the index file as a reader would; returns its size."""
        path = segment.path.removesuffix(".seg") + ".idx"
        try:
            load_index(self._env, segment)
            file = self._env.open(path)
            size = file.size()
            file.close()
            return size
        except FileNotFoundError:
            return 0
        except CorruptionError as error:
            # Retention removes the two files one after the other.
            if self._env.exists(segment.path):
                self._found(path, 0, error.bytes_lost, str(error))
            return 0

    def _damaged(self, segment: Segment, stretch: Stretch) -> None:
        self._found(segment.path, segment.base + stretch.at, stretch.end - stretch.at, stretch.kind.value)

    def _found(self, path: str, position: int, size: int, reason: str) -> None:
        if (path, position) in self._known:
            return
        self._known.add((path, position))
        self._suspects.add(int(path.rpartition("/")[2].partition(".")[0]))
        self.counts.damage += 1
        limited.error("file=%s position=%d: scrub found %d bytes damaged: %s", path, position, size, reason, about=path)


def _leave_cache(file: File, stretch: Stretch) -> None:
    """Drop the bytes from the page cache: they must not evict what consumers read."""
    if file.fileno() >= 0:
        os.posix_fadvise(file.fileno(), stretch.at, stretch.end - stretch.at, os.POSIX_FADV_DONTNEED)
