"""Scan of one segment from end to end in windows: which bytes are whole batches and which are not.

For recovery, tools and the scrub, which must neither map a file (a bad sector would raise SIGBUS) nor hold one in
memory. The window lies at its own address in a reserved range as large as the segment, so that the native scan sees
file addresses. Scanned pages are given back to the system.
"""

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

from engine.env.base import File
from engine.log.format import BATCH_HEADER, BATCH_HEADER_SIZE, BATCH_MAGIC, SEGMENT_HEADER_SIZE, padded
from engine.log.segment.native import BatchReader, SegmentIndex

WINDOW_BYTES = 4 << 20
SECTOR = 4096
_ZEROS = bytes(256 << 10)
_MAGIC_BYTES = BATCH_MAGIC.to_bytes(2, "little")


class StretchKind(Enum):
    """Contents of a stretch of a segment."""

    GOOD = "whole batches"
    BAD = "bytes that do not verify, before a whole batch"
    TAIL = "bytes other than zero after the last whole batch"
    MISSING = "zeros where batches were"
    """Not yielded by a scan: only the next segment's header tells it."""


class Stretch(NamedTuple):
    """Bytes of the file from `at` to before `end`. `control`: addresses of its batches that are copied or no messages."""

    kind: StretchKind
    at: int
    end: int
    control: list[int]


class WindowScan:
    """Scans one segment, once. `room` holds the bytes of the stretch that was yielded last, at their file addresses.

    Args:
        index: takes every whole batch.
        again: asked when the disk cannot read a sector: whether to try once more. It may block before it answers.
    """

    def __init__(
        self, batches: BatchReader, file: File, base: int, index: SegmentIndex, *, window_bytes: int = WINDOW_BYTES,
        again: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._batches, self._file, self._index, self._base = batches, file, index, base
        self._window, self._again = window_bytes, again
        self.limit = file.size()
        self._zero_from = file.data_end()
        self.room = mmap.mmap(-1, max(self.limit, 1))
        with suppress(OSError):
            self.room.madvise(mmap.MADV_HUGEPAGE)  # a fault for each 4 KiB would cost more than the checksums
        self.end_at = SEGMENT_HEADER_SIZE
        """Address after the last whole batch so far."""
        self.last_at = self.epoch = 0
        self.unreadable: list[int] = []
        """Addresses of sectors that cannot be read; they count as zeros."""
        self._from = self._to = self._used_to = 0

    def stretches(self, at: int = SEGMENT_HEADER_SIZE) -> Iterator[Stretch]:
        """All bytes after the header, or from `at` on, in order, except zeros after the last batch. Blocks."""
        while at < self.limit:
            good = self._good(at)
            if good is not None:
                self.end_at = at = good.end
                yield good
                continue
            following = self._find(at)
            if following is None:
                if self._used_to > at:
                    self._load(at, min(self._used_to, at + self._window))
                    yield Stretch(StretchKind.TAIL, at, self._used_to, [])
                return
            self._load(at, min(following, at + self._window))
            yield Stretch(StretchKind.BAD, at, following, [])
            at = following

    def go_on_with(self, index: SegmentIndex) -> None:
        """Put the batches from here on into another index."""
        self._index = index

    def close(self) -> None:
        """Give the memory back."""
        self.room.close()

    def _good(self, at: int) -> Stretch | None:
        """About one window of whole batches that begin at `at`, or None."""
        self._load(at, at + self._window)
        if self._reach(at) > self._to:
            self._load(at, self._reach(at))
        end, control, epoch, last, _ = self._batches.scan(self._index, self.room, at, self._to)
        if end == at:
            return None
        self.last_at, self.epoch = last, max(self.epoch, epoch)
        return Stretch(StretchKind.GOOD, at, end, control)

    def _reach(self, at: int) -> int:
        """Address after the batch at `at`, whole or not; 0 when there is none."""
        if at + BATCH_HEADER_SIZE > self._to:
            return 0
        _, size, magic = BATCH_HEADER.unpack_from(self.room, at)[:3]
        return at + size if magic == BATCH_MAGIC and at + size <= self.limit else 0

    def _find(self, at: int) -> int | None:
        """First whole batch after the bad bytes at `at`.

        Without one, `_used_to` is after the last byte that is not 0.
        """
        low = self._used_to = at
        while (data := self._file.next_data(low)) is not None and data < min(self.limit, self._zero_from):
            low = max(low, data & ~7)
            self._load(low, low + self._window)
            if used := self._last_used(low, self._to):
                self._used_to = used
                found = self._batches.find_next(self.room, self._base, low, self._to) or self._find_large(low)
                if found is not None:
                    return found
            if self._to >= self.limit:
                return None
            # The header of a batch may lie on both sides of the window's end.
            low = self._to - padded(BATCH_HEADER_SIZE)
        return None

    def _last_used(self, start: int, end: int) -> int:
        """Address after the last byte that is not zero, 0 when all are."""
        while end > start:
            piece = self.room[max(start, end - len(_ZEROS)) : end]
            if piece != _ZEROS and (stripped := piece.rstrip(b"\0")):
                return end - len(piece) + len(stripped)
            end -= len(piece)
        return 0

    def _find_large(self, low: int) -> int | None:
        """A whole batch that begins in the window and ends after it."""
        end = self._to
        found = self.room.find(_MAGIC_BYTES, low + 8, end)
        while found >= 0:
            start = found - 8
            if start % 8 == 0 and self._reach(start) > end:
                self._load(low, self._reach(start))
                if self._batches.check(self.room, start, self._to, self._base + start):
                    return start
            found = self.room.find(_MAGIC_BYTES, found + 1, end)
        return None

    def _load(self, start: int, end: int) -> None:
        """Load the bytes from `start` to `end` into the room, and release the pages before them."""
        end = min(end, self.limit)
        page = start - start % mmap.PAGESIZE
        if not self._from <= start <= self._to:
            self._drop(self._to)
            self._from, self._to = page, start
        elif page - self._from >= self._window:
            self._drop(page)
            self._from = page
        while self._to < end:
            self._to += self._read(self._to, end)

    def _read(self, at: int, end: int) -> int:
        """Read into the room. A sector that cannot be read stays zero there and is noted."""
        end = min(end, at + self._window)
        if at >= self._zero_from:
            # Allocated room that was never written: reading it would take long, and make it look written.
            return end - at
        end = min(end, self._zero_from)
        try:
            taken = self._fill(at, end)
        except OSError:
            data = self._read_sectors(at, end)
            self.room[at : at + len(data)] = data
            taken = len(data)
        if not taken:
            self.limit = at  # the file was cut meanwhile
        return taken or end - at

    def _fill(self, at: int, end: int) -> int:
        fd = self._file.fileno()
        if fd >= 0:
            with memoryview(self.room)[at:end] as target:
                return os.preadv(fd, [target], at)
        data = self._file.read_at(end - at, at)
        self.room[at : at + len(data)] = data
        return len(data)

    def _read_sectors(self, at: int, end: int) -> bytes:
        parts = []
        while at < end:
            size = min(SECTOR - at % SECTOR, end - at)
            parts.append(self._read_sector(size, at))
            at += size
        return b"".join(parts)

    def _read_sector(self, size: int, at: int) -> bytes:
        while True:
            try:
                return self._file.read_at(size, at)
            except OSError:
                if not self._again():
                    self.unreadable.append(at)
                    return bytes(size)

    def _drop(self, end: int) -> None:
        """Give pages back to the system; they read as zeros afterwards."""
        if end > self._from:
            self.room.madvise(mmap.MADV_DONTNEED, self._from, end - self._from)
