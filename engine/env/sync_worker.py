"""The sync worker of the real machine: a thread that only syncs, watched by the gevent loop of the thread that starts it."""

from collections.abc import Callable

from engine.env.base import File, SyncWorker
from engine.env.native import SyncThread


class ThreadSyncWorker(SyncWorker):
    """A `SyncThread` and the watcher of its answers."""

    def __init__(self, on_done: Callable[[], None]) -> None:
        import gevent  # so that offline tools and tests without a loop do without it

        self._thread = SyncThread()
        self._watcher = gevent.get_hub().loop.io(self._thread.done_fd, 1)
        self._watcher.start(on_done)

    def request(self, file: File, position: int) -> None:
        self._thread.request(file.fileno(), position)

    def leave_behind(self, file: File) -> bool:
        return self._thread.leave_behind(file.fileno())

    def collect(self) -> tuple[int, int]:
        return self._thread.collect()

    def spent(self) -> tuple[int, int]:
        return self._thread.spent()

    def stop(self) -> None:
        self._watcher.stop()
        self._watcher.close()
        self._thread.stop()
