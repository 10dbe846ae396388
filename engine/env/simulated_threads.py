"""Threads of a simulated machine: their work runs in steps of virtual time, beside the loop.

`later(kind, step)` runs a step after a while, unless the process has ended by then. It is the simulation's only choice:
how late a step runs is how slow the thread is. Between two steps the loop goes on, as it does beside a real thread.
"""

import errno
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from engine.env.background import Background
from engine.env.base import File, SyncWorker

Later = Callable[[str, Callable[[], None]], None]
TASK, SYNC = "task", "sync"
"""Kinds of steps: one task of a background worker; one sync, from its start to its end."""


class SimulatedBackground(Background):
    """Runs one task per step, in the order in which they were submitted."""

    def __init__(self, later: Later, die: Callable[[str], None]) -> None:
        self._later, self._die = later, die
        self._tasks: deque[Callable[[], None]] = deque()
        self._running = False

    def submit(self, task: Callable[[], None]) -> None:
        self._tasks.append(task)
        if not self._running:
            self._running = True
            self._later(TASK, self._step)

    def drain(self) -> None:
        while self._tasks:
            self._run_one()

    def stop(self) -> None:
        self.drain()

    def _step(self) -> None:
        self._running = False
        if self._tasks:
            self._run_one()
        if self._tasks and not self._running:
            self._running = True
            self._later(TASK, self._step)

    def _run_one(self) -> None:
        task = self._tasks.popleft()
        try:
            task()
        except Exception:
            self._die("a background task failed\n" + traceback.format_exc())


class SimulatedSyncWorker(SyncWorker):
    """Syncs as `SyncThread` does: one at a time; what is requested meanwhile becomes the next one.

    A sync makes durable what was written before it began.
    """

    EARLIER_MAX = 8

    def __init__(self, later: Later, on_done: Callable[[], None]) -> None:
        self._later, self._on_done = later, on_done
        self._file: File | None = None
        self._earlier: list[File] = []
        self._wanted = self._done = self._error = 0
        self._has_news = self._busy = self._stopped = False

    def request(self, file: File, position: int) -> None:
        self._file, self._wanted, self._has_news = file, position, True
        self._begin()

    def leave_behind(self, file: File) -> bool:
        if len(self._earlier) == self.EARLIER_MAX:
            return False
        self._earlier.append(file)
        return True

    def collect(self) -> tuple[int, int]:
        return self._done, self._error

    def stop(self) -> None:
        self._stopped = True

    def _begin(self) -> None:
        if self._busy or self._stopped or self._error or not self._has_news:
            return
        assert self._file is not None
        self._busy, self._has_news = True, False
        given: tuple[Any, ...] = (*self._earlier, self._file)  # of SimulatedFile
        files = [(file, file.content.changed) for file in given]
        self._earlier = []
        wanted = self._wanted
        self._later(SYNC, lambda: self._end(files, wanted))

    def _end(self, files: list[tuple[Any, int]], wanted: int) -> None:
        self._busy = False
        if self._stopped:
            return
        try:
            for file, changed in files:
                file.sync_until(changed)
            self._done = wanted
        except OSError as error:
            self._error = error.errno or errno.EIO
        self._begin()
        self._on_done()
