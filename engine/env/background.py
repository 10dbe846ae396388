"""Worker threads for tasks that block: preparing and sealing segments, bringing the view up to date.

They are threads of the system even in a process whose threads gevent has replaced, because file operations would block
the loop. So no task may touch the loop.
"""

import logging
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator

from common.limited_log import LimitedLog
from common.unpatched import original

logger = logging.getLogger(__name__)
limited = LimitedLog(logger)
LINGER_S = 1.0
"""Idle time after which a worker thread ends. Starting one costs the loop 0.1 ms; an idle log needs none."""


class Background(ABC):
    """Runs tasks one at a time, in the order in which they were submitted."""

    @abstractmethod
    def submit(self, task: Callable[[], None]) -> None:
        """Queue the task and return. An exception in a task ends the process: the state that it leaves is unknown."""

    @abstractmethod
    def drain(self) -> None:
        """Block until all tasks submitted so far have run."""

    @abstractmethod
    def stop(self) -> None:
        """Run the queued tasks, then end the worker. Blocks."""


class ThreadBackground(Background):
    """Runs tasks in a thread; `die(reason)` is called when one raises."""

    def __init__(self, die: Callable[[str], None]) -> None:
        self._die = die
        self._tasks: deque[Callable[[], None]] = deque()
        allocate = original("_thread", "allocate_lock")
        self._start = original("_thread", "start_new_thread")
        self._lock_type = allocate
        self._guard, self._news = allocate(), allocate()
        self._news.acquire()
        self._running = self._resting = False

    def submit(self, task: Callable[[], None]) -> None:
        with self._guard:
            self._tasks.append(task)
            if self._running:
                if self._resting:
                    self._resting = False
                    self._news.release()
                return
            self._running = True
        try:
            self._start(self._run, ())
        except RuntimeError as error:  # a bound of threads is reached, or memory is short
            limited.warning("no thread for background tasks: %s; the loop runs them and waits", error)
            self._run_here()

    def drain(self) -> None:
        done = self._lock_type()
        done.acquire()
        self.submit(done.release)
        done.acquire()

    def stop(self) -> None:
        self.drain()

    def _run(self) -> None:
        while (task := self._next()) is not None:
            self._do(task)

    def _run_here(self) -> None:
        """Run the queued tasks in the caller. A later submit tries again to start a thread."""
        while True:
            with self._guard:
                if not self._tasks:
                    self._running = False
                    return
                task = self._tasks.popleft()
            self._do(task)

    def _do(self, task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException:
            self._die("a background task failed\n" + traceback.format_exc())

    def _next(self) -> Callable[[], None] | None:
        """The next task; None: none came for LINGER_S, so the thread ends."""
        with self._guard:
            if self._tasks:
                return self._tasks.popleft()
            self._resting = True
        self._news.acquire(timeout=LINGER_S)
        with self._guard:
            if not self._resting:
                self._news.acquire(blocking=False)  # submitted between the end of the wait and now
                return self._tasks.popleft()
            self._running = self._resting = False
            return None


class InlineBackground(Background):
    """Runs each task at once in the caller; for tests, where the order of all steps is fixed.

    `die(reason)` is called when one raises, as by the thread.
    """

    def __init__(self, die: Callable[[str], None]) -> None:
        self._die = die

    def submit(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception:
            self._die("a background task failed\n" + traceback.format_exc())

    def drain(self) -> None:
        pass

    def stop(self) -> None:
        pass


class PacedThread:
    """Runs endless work off the loop in small steps, until `stop()`, which blocks for one step at most.

    Args:
        name: of the work, for the log.
        steps: does one step per item and yields the pause before the next, in seconds.
    """

    def __init__(self, name: str, steps: Generator[float, None, None]) -> None:
        self._name, self._steps = name, steps
        self._stop = original("_thread", "allocate_lock")()
        self._ended = original("_thread", "allocate_lock")()
        self._stop.acquire()
        self._ended.acquire()
        original("_thread", "start_new_thread")(self._run, ())

    def stop(self) -> None:
        """End the thread."""
        self._stop.release()
        self._ended.acquire()

    def _run(self) -> None:
        try:
            for pause_s in self._steps:
                if self._stop.acquire(timeout=pause_s):
                    return
        except Exception:
            # The steps handle damaged files themselves. Other faults are those of a failing disk, which the log's reads
            # report, too.
            logger.exception("work=%s: ended by an error; a restart begins it again", self._name)
        finally:
            self._steps.close()
            self._ended.release()
