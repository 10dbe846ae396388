"""Feeding a segment's batches, verified, to a TermCollector or a TermSearcher, in small steps."""

import os
from collections.abc import Iterator
from typing import Any

from engine.env.base import File
from engine.log.format import SEGMENT_HEADER_SIZE
from engine.log.segment.native import BatchReader, SegmentIndex
from engine.log.segment.window_scan import Stretch, StretchKind, WindowScan

STEP_BYTES = 1 << 20
PAGE = 4096
"""Only the first page of a step is checked for being cached: checking more would read it twice."""


class _InPlaceOfIndex:
    """A BatchReader for a WindowScan whose `scan` feeds a TermCollector or a TermSearcher."""

    def __init__(self, batches: BatchReader, taker: Any) -> None:
        self.scan, self.check, self.find_next = taker.scan, batches.check, batches.find_next


def feed_batches(
    batches: BatchReader, file: File, base: int, end_at: int, taker: Any, start: int = SEGMENT_HEADER_SIZE
) -> Iterator[Stretch]:
    """Feed all whole batches from `start` to `end_at` to the taker; yields each stretch that it has taken. Blocks.

    Bytes that were not in the page cache do not stay there: a look-up must not evict what consumers read.
    """
    at, end_at = start, min(end_at, file.size())
    buffer = bytearray(STEP_BYTES)
    while at < end_at:
        was_cached = file.in_memory(PAGE, at)
        end = taker.scan(None, buffer, at, at + _read(file, buffer, at, end_at), at)[0]
        if end > at:
            stretch = Stretch(StretchKind.GOOD, at, end, [])
        else:
            found = _scan_one(batches, file, base, end_at, taker, at)
            if found is None:
                return
            stretch = found
        if not was_cached:
            file.forget(stretch.at, stretch.end - stretch.at)
        at = stretch.end
        if stretch.kind is StretchKind.GOOD:
            yield stretch


def _read(file: File, buffer: bytearray, at: int, end_at: int) -> int:
    """Fill the buffer; returns the number of bytes read, 0 where a sector cannot be read."""
    size = min(len(buffer), end_at - at)
    try:
        if file.fileno() >= 0:
            return os.preadv(file.fileno(), [memoryview(buffer)[:size]], at)
        data = file.read_at(size, at)
    except OSError:
        return 0
    buffer[: len(data)] = data
    return len(data)


def _scan_one(batches: BatchReader, file: File, base: int, end_at: int, taker: Any, at: int) -> Stretch | None:
    """The stretch at an address where no batch fits into a step: a large batch, damage, or None at the end."""
    scan = WindowScan(_InPlaceOfIndex(batches, taker), file, base, SegmentIndex(base, 0))  # type: ignore[arg-type]
    scan.limit = end_at
    try:
        return next(scan.stretches(at), None)
    finally:
        scan.close()
