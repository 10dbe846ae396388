"""Scheduler of a node's recurring work. The monotonic time is passed in; it reads no clock."""

import logging
from collections.abc import Callable

from common.limited_log import LimitedLog

limited = LimitedLog(logging.getLogger("penstock.engine"))
AFTER_FAULT_MS = 1000
"""Pause of work after an unexpected exception."""


class Work:
    """One kind of recurring work.

    Args:
        name: for the log.
        run: does the due work at the given time (milliseconds); returns the time of its next call, None: not before
            `at()`.

    Attributes:
        due_ms: when it runs next; None: it is not needed now.
    """

    __slots__ = ("due_ms", "name", "run")

    def __init__(self, name: str, run: Callable[[int], int | None]) -> None:
        self.name, self.run = name, run
        self.due_ms: int | None = None


class Schedule:
    """All work of one node.

    Args:
        wake_at: called with a time in milliseconds that is sooner than every time that `run()` or it was given before.
            The owner of the clock has to call `run()` then.
    """

    def __init__(self, wake_at: Callable[[int], None]) -> None:
        self._wake_at = wake_at
        self._works: list[Work] = []
        self._woken_at: int | None = None
        self._running = False

    def add(self, name: str, run: Callable[[int], int | None]) -> Work:
        """Add a kind of work. It is not due before `at()` says so."""
        work = Work(name, run)
        self._works.append(work)
        return work

    def at(self, work: Work, due_ms: int) -> None:
        """Have the work run at `due_ms` at the latest."""
        if work.due_ms is None or due_ms < work.due_ms:
            work.due_ms = due_ms
            if not self._running and (self._woken_at is None or due_ms < self._woken_at):
                self._woken_at = due_ms
                self._wake_at(due_ms)

    def run(self, now_ms: int) -> int | None:
        """Do the due work; returns the time of the next call, None: not before the next `wake_at`."""
        self._running = True
        try:
            for work in self._works:
                if work.due_ms is not None and work.due_ms <= now_ms:
                    self._run(work, now_ms)
        finally:
            self._running = False
        self._woken_at = min((work.due_ms for work in self._works if work.due_ms is not None), default=None)
        return self._woken_at

    def _run(self, work: Work, now_ms: int) -> None:
        work.due_ms = None
        try:
            again_ms = work.run(now_ms)
        except Exception:
            limited.exception("work=%s: failed: retry in %d ms", work.name, AFTER_FAULT_MS, about=work.name)
            again_ms = now_ms + AFTER_FAULT_MS
        if again_ms is not None:
            self.at(work, again_ms)

    def stop(self, work: Work) -> None:
        """Stop this work until the next `at()`."""
        work.due_ms = None
