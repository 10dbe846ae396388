"""Cold windows whose bytes another broker lends, in memory: the own disk and the page cache have no part in them.

All windows of a segment are of one kind, borrowed or fetched from the own disk, since a batch may lie in two of them.
Design: docs/design/0033-reads-by-slaves.md.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from engine.env.base import Env, File
from engine.log.segment.segment import Segment, write_whole

WINDOW = 1 << 20
"""Bytes fetched at once. A window is read when the next one is there, too: a batch that begins in one may end in the
other."""

IDLE_MS = 10_000
"""Time without reads after which the memory is given back."""

CROWDED_MS = 10_000
"""Time for which a segment is read from the own disk after too many windows were wanted at once."""

UNSOUND_MS = 600_000
"""The same after bytes that did not verify, or a batch that is larger than what is borrowed at once."""

OWN_MAX = 1000


class Lender(Protocol):
    """The brokers that have the same bytes.

    Attributes:
        far_bytes: distance of a segment's begin from the end of the log from which on bytes are borrowed.
    """

    far_bytes: int

    @property
    def is_ready(self) -> bool:
        """Whether a broker can be asked now. For the loop's thread: costs look-ups in memory."""

    def lend(self, base: int, address: int, size: int) -> bytes:
        """Bytes of the segment at `base` from the address on, at most `size`; empty: they cannot be had now.

        Blocks, for a second at most. For the thread of cold reads; raises nothing.
        """

    def stop(self) -> None:
        """Let a call that waits return soon, and every later one at once. Callable from every thread."""


class BorrowedSegment:
    """Memory with windows of one segment, at their addresses.

    Attributes:
        windows: number of those that are there or being fetched.
        is_over: it was given back; the thread must not begin to fill another window.
    """

    def __init__(self, base: int, file: File) -> None:
        self.base, self.file = base, file
        self.windows = 0
        self.is_over = False

    def clear(self, number: int) -> None:
        """Give a window's memory back. In the thread."""
        with suppress(OSError):  # it is given back with the file then
            self.file.clear(number * WINDOW, WINDOW)


class BorrowedWindows:
    """The segments that are read from borrowed bytes now. Methods belong to the loop's thread, except where noted.

    Attributes:
        lender: None: nothing is borrowed.
        segments: by base.
        bytes_borrowed: so far.
    """

    def __init__(self, env: Env, windows_max: int) -> None:
        self._env = env
        self._pending_max = windows_max // 2
        self.lender: Lender | None = None
        self.segments: dict[int, BorrowedSegment] = {}
        self._own: dict[int, int] = {}  # base -> time until which it is read from the own disk
        self._used_ms = 0
        self.bytes_borrowed = 0

    def is_far(self, segment: Segment, end_position: int) -> bool:
        """Whether the segment is so far from the end of the log that its bytes are borrowed if a broker is ready."""
        return self.lender is not None and end_position - segment.base >= self.lender.far_bytes

    def begins(self, segment: Segment, end_position: int) -> bool:
        """Whether a segment without windows is borrowed from now on."""
        lender = self.lender
        if lender is None or not self.is_far(segment, end_position) or not lender.is_ready:
            return False
        if self._own.get(segment.base, 0) > self._now_ms():
            return False
        try:
            file = self._env.memory_file(f"borrowed-{segment.base}", segment.header.size)
        except OSError:  # memory or descriptors are short
            return False
        self.segments[segment.base] = BorrowedSegment(segment.base, file)
        return True

    def is_crowded(self, states: Iterable[bool]) -> bool:
        """Whether so many windows are being fetched (False) that the memory could not hold what others have read."""
        return sum(not is_here for is_here in states) > self._pending_max

    def use(self, borrowed: BorrowedSegment) -> File:
        """The file to read its windows from; they are wanted now, or read."""
        self._used_ms = self._now_ms()
        return borrowed.file

    @property
    def is_idle(self) -> bool:
        """Whether there are segments, and none was read for a while."""
        return bool(self.segments) and self._now_ms() - self._used_ms >= IDLE_MS

    def end(self, base: int, own_ms: int = 0) -> BorrowedSegment | None:
        """Read the segment from its own file, for this time at least. The caller has the file closed in the thread."""
        if own_ms:
            if len(self._own) >= OWN_MAX:
                self._own.clear()
            self._own[base] = self._now_ms() + own_ms
        borrowed = self.segments.pop(base, None)
        if borrowed is not None:
            borrowed.is_over = True
        return borrowed

    def fill(self, borrowed: BorrowedSegment, number: int, own: File) -> int:
        """Bring a window there, from the page cache or by the lender, else from the disk. In the thread.

        Returns the bytes that the disk has read. Raises OSError.
        """
        at = number * WINDOW
        end = min(at + WINDOW, own.size())
        if not own.in_memory(end - at, at):
            at = self._borrow(borrowed, at, end)
        if at >= end:
            return 0
        was_cached = own.in_memory(end - at, at)
        write_whole(borrowed.file, own.read_at(end - at, at), at)
        if was_cached:
            return 0
        own.forget(at, end - at)
        return end - at

    def _borrow(self, borrowed: BorrowedSegment, at: int, end: int) -> int:
        """The address up to which the lender had the bytes."""
        lender = self.lender
        while lender is not None and at < end and (data := lender.lend(borrowed.base, at, end - at)[: end - at]):
            write_whole(borrowed.file, data, at)
            self.bytes_borrowed += len(data)
            at += len(data)
        return at

    def close(self) -> None:
        """Give all back. The thread has ended."""
        for borrowed in self.segments.values():
            borrowed.file.close()
        self.segments.clear()

    def _now_ms(self) -> int:
        return self._env.clock.monotonic_ms()
