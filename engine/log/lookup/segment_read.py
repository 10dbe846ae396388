"""A segment's batches, verified and given to a Collector or a Searcher, a small step at a time."""

from collections.abc import Iterator
from typing import Any

from engine.env import File
from engine.log.format import SEGMENT_HEADER_SIZE
from engine.log.native import BatchReader, SegmentIndex
from engine.log.walk import Kind, Stretch, Walk

STEP_BYTES = 1 << 20
PAGE = 4096
"""The first one of a step stands for all of it: asking for more would read it twice."""


class _InPlaceOfIndex:
    """What a Walk needs of a BatchReader, but that a Collector or Searcher takes the batches."""

    def __init__(self, batches: BatchReader, taker: Any) -> None:
        self.scan, self.check, self.find_next = taker.scan, batches.check, batches.find_next


def read_names(
    batches: BatchReader, file: File, base: int, end_at: int, taker: Any, start: int = SEGMENT_HEADER_SIZE
) -> Iterator[Stretch]:
    """Give all whole batches from `start` to `end_at` to the taker; yields each stretch that it has taken. Blocks.

    What was not in the page cache before does not stay there: a look far back must not push out what consumers read.
    """
    walk = Walk(_InPlaceOfIndex(batches, taker), file, base, SegmentIndex(base, 0), window_bytes=STEP_BYTES)  # type: ignore[arg-type]
    walk.limit = min(walk.limit, end_at)
    try:
        stretches = walk.stretches(start)
        at = start
        while True:
            was_cached = file.in_memory(PAGE, at)
            stretch = next(stretches, None)
            if stretch is None:
                return
            if not was_cached:
                file.forget(stretch.at, stretch.end - stretch.at)
            at = stretch.end
            if stretch.kind is Kind.GOOD:
                yield stretch
    finally:
        walk.close()
