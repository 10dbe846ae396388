"""Group commit: callbacks by position, called from the loop once a sync has covered them.

The only user of gevent here.
"""

import os
from abc import ABC, abstractmethod
from bisect import insort
from collections import deque
from collections.abc import Callable
from typing import Any

from engine.env.base import Env, File
from engine.log.write.native import SyncThread


class Syncer(ABC):
    """Makes positions durable. All methods belong to the loop's thread."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self.durable_position = 0

    def switch(self, file: File, position: int) -> None:
        """Continue in `file` from `position` on. Bytes before it that are not synced yet are still synced first."""
        self._file = file

    @abstractmethod
    def when_durable(self, position: int, end_position: int, callback: Callable[[], None]) -> None:
        """Call back once bytes below `position` are synced, at once when they are.

        Everything below `end_position` is synced with them.
        """

    def advance(self, position: int) -> None:
        """Note that everything below is synced, and call the callbacks that waited for it."""
        if position > self.durable_position:
            self.durable_position = position
        while self._waiting and self._waiting[0][0] <= self.durable_position:
            self._waiting.popleft()[1]()

    def _enqueue(self, position: int, callback: Callable[[], None]) -> None:
        if not self._waiting or self._waiting[-1][0] <= position:
            self._waiting.append((position, callback))
        else:
            insort(self._waiting, (position, callback), key=lambda waiting: waiting[0])

    def close(self) -> None:
        """End the thread. Callbacks that still wait are never called."""
        self._waiting.clear()


class ThreadSyncer(Syncer):
    """Syncs in a thread of its own; callbacks run in the gevent loop of the thread that waits first."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._thread: SyncThread | None = None
        self._watcher: Any = None

    def _start(self) -> SyncThread:
        import gevent  # so that offline tools and tests without a loop do without it

        self._thread = SyncThread()
        self._watcher = gevent.get_hub().loop.io(self._thread.done_fd, 1)
        self._watcher.start(self._on_done)
        return self._thread

    def switch(self, file: File, position: int) -> None:
        if self._thread is not None and self._file is not file and not self._thread.leave_behind(self._file.fileno()):
            sync_or_die(self._env, self._file)
        super().switch(file, position)

    def when_durable(self, position: int, end_position: int, callback: Callable[[], None]) -> None:
        if position <= self.durable_position:
            callback()
            return
        self._enqueue(position, callback)
        (self._thread or self._start()).request(self._file.fileno(), end_position)

    def _on_done(self) -> None:
        assert self._thread is not None
        done, error = self._thread.collect()
        if error:
            self._env.die(f"{self._file.path}: fdatasync failed: {os.strerror(error)}")
        self.advance(done)

    def close(self) -> None:
        super().close()
        if self._thread is not None:
            self._watcher.stop()
            self._watcher.close()
            self._thread.stop()
            self._thread = None


class InlineSyncer(Syncer):
    """Syncs at once, in the caller; for simulations."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._owed: list[File] = []

    def switch(self, file: File, position: int) -> None:
        if self.durable_position:
            self._owed.append(self._file)
        super().switch(file, position)

    def when_durable(self, position: int, end_position: int, callback: Callable[[], None]) -> None:
        self._enqueue(position, callback)
        if position > self.durable_position:
            for file in (*self._owed, self._file):
                sync_or_die(self._env, file)
            self._owed.clear()
        self.advance(end_position)


def sync_or_die(env: Env, file: File) -> None:
    """fdatasync in the caller. Blocks.

    A failure ends the process: the kernel has dropped the bytes, and a second sync would report success without them.
    """
    try:
        file.sync()
    except OSError as error:
        env.die(f"{file.path}: fdatasync failed: {error}")
