"""One worker thread for tasks that block: preparing and sealing segments, bringing the view up to date.

A real thread even in a process whose threads gevent has replaced, because files block the loop; so nothing here may
touch the loop.
"""

import logging
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator

logger = logging.getLogger(__name__)
LINGER_S = 1.0
"""How long a thread waits for the next task before it ends: starting one costs the loop 0.1 ms, and an idle log has none."""


def original(module: str, name: str) -> Callable:
    """The function as it was before gevent patched it, or as it is."""
    try:
        from gevent.monkey import get_original
    except ImportError:
        return getattr(__import__(module), name)
    return get_original(module, name)


class Background(ABC):
    """Runs tasks one after the other, in the order given."""

    @abstractmethod
    def submit(self, task: Callable[[], None]) -> None:
        """Queue the task and return.

        An exception in it ends the process, since nobody could answer for what it left behind.
        """

    @abstractmethod
    def drain(self) -> None:
        """Block until all tasks given so far have run."""

    @abstractmethod
    def stop(self) -> None:
        """Run what is queued, then end the worker. Blocks."""


class ThreadBackground(Background):
    """Tasks in a thread; `die(reason)` is called when one raises."""

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
            if not self._running:
                self._running = True
                self._start(self._run, ())
            elif self._resting:
                self._resting = False
                self._news.release()

    def drain(self) -> None:
        done = self._lock_type()
        done.acquire()
        self.submit(done.release)
        done.acquire()

    def stop(self) -> None:
        self.drain()

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            except BaseException:
                self._die("a background task failed\n" + traceback.format_exc())

    def _next(self) -> Callable[[], None] | None:
        """The next task; None when there was none for a while, and the thread is to end."""
        with self._guard:
            if self._tasks:
                return self._tasks.popleft()
            self._resting = True
        self._news.acquire(timeout=LINGER_S)
        with self._guard:
            if not self._resting:
                self._news.acquire(blocking=False)  # given between the end of the wait and now
                return self._tasks.popleft()
            self._running = self._resting = False
            return None


class InlineBackground(Background):
    """Runs each task at once in the caller; for simulations, where the order of everything is fixed."""

    def submit(self, task: Callable[[], None]) -> None:
        task()

    def drain(self) -> None:
        pass

    def stop(self) -> None:
        pass


class PacedThread:
    """Does work that never ends in small pieces off the loop, until `stop()`, which blocks for one piece at most.

    Args:
        what: it is, for the log.
        steps: does a piece and yields how many seconds to wait before the next.
    """

    def __init__(self, what: str, steps: Generator[float, None, None]) -> None:
        self._what, self._steps = what, steps
        self._stop = original("_thread", "allocate_lock")()
        self._ended = original("_thread", "allocate_lock")()
        self._stop.acquire()
        self._ended.acquire()
        original("_thread", "start_new_thread")(self._run, ())

    def stop(self) -> None:
        """End it."""
        self._stop.release()
        self._ended.acquire()

    def _run(self) -> None:
        try:
            for pause_s in self._steps:
                if self._stop.acquire(timeout=pause_s):
                    return
        except Exception:
            # Damage has been answered in the steps; what is left is a disk that fails, and the log's own reads will say so.
            logger.exception("%s ends", self._what)
        finally:
            self._steps.close()
            self._ended.release()
