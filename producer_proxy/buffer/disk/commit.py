"""Group commit: one sync at a time in the hub's thread pool; later writers are covered by the next sync."""

from collections.abc import Callable

import gevent
from gevent.event import AsyncResult

from producer_proxy.buffer.disk.threads import in_thread


class GroupCommit:
    """Groups writers into rounds, with one sync per round.

    Args:
        sync: called in a thread with the files written since the last round; returns when they are durable, or raises
            OSError.
    """

    def __init__(self, sync: Callable[[set], None]) -> None:
        self._sync = sync
        self._waiting: list[tuple[AsyncResult, Callable[[], None]]] = []
        self._dirty: set = set()
        self._running = False

    @property
    def idle(self) -> bool:
        return not self._running

    def wait(self, dirty: object, durable: Callable[[], None]) -> None:
        """Block this greenlet until earlier writes to `dirty` are durable.

        Before the return, `durable()` is called, in the order of the calls.

        Raises: the error of the sync, and `durable` is not called then; or the error of `durable`.
        """
        result: AsyncResult = AsyncResult()
        self._waiting.append((result, durable))
        self._dirty.add(dirty)
        if not self._running:
            self._running = True
            gevent.spawn(self._run)
        result.get()

    def _run(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                dirty, self._dirty = self._dirty, set()
                error: Exception | None = None
                try:
                    in_thread(self._sync, dirty)
                except Exception as failed:
                    error = failed
                for result, durable in waiting:
                    _finish(result, durable, error)
        finally:
            self._running = False


def _finish(result: AsyncResult, durable: Callable[[], None], error: Exception | None) -> None:
    """Wake one writer. An error of its own `durable` is raised for it alone."""
    try:
        if error is not None:
            raise error
        durable()
    except Exception as failed:
        result.set_exception(failed)
    else:
        result.set()
