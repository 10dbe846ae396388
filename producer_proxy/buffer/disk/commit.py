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

        Raises: OSError of the sync; `durable` is not called then.
        """
        result: AsyncResult = AsyncResult()
        self._waiting.append((result, durable))
        self._dirty.add(dirty)
        if not self._running:
            self._running = True
            gevent.spawn(self._run)
        result.get()

    def _run(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            dirty, self._dirty = self._dirty, set()
            error: Exception | None = None
            try:
                in_thread(self._sync, dirty)
            except OSError as failed:
                error = failed
            for result, durable in waiting:
                if error is None:
                    durable()
                    result.set()
                else:
                    result.set_exception(error)
        self._running = False
