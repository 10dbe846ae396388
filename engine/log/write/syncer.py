"""Group commit: callbacks by position, called from the loop once a sync has covered them."""

import logging
import os
from abc import ABC, abstractmethod
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable

from common.limited_log import LimitedLog
from engine.env.base import Env, File, SyncWorker
from engine.env.native import Durations
from engine.log.write.failed_sync import die_of_sync

logger = LimitedLog(logging.getLogger(__name__))


class Syncer(ABC):
    """Makes positions durable. All methods belong to the loop's thread.

    Args:
        unsynced: returns the full files before the current one that may not be synced yet, oldest first.
    Attributes:
        times: durations of the worker's syncs.
    """

    def __init__(self, env: Env, unsynced: Callable[[], Iterable[File]]) -> None:
        self._env, self._unsynced = env, unsynced
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self.durable_position = 0
        self.times = Durations()

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
            callback = self._waiting.popleft()[1]
            try:
                callback()
            except Exception:
                logger.exception("position=%d: a callback after the sync failed", self.durable_position)

    def _enqueue(self, position: int, callback: Callable[[], None]) -> None:
        if not self._waiting or self._waiting[-1][0] <= position:
            self._waiting.append((position, callback))
        else:
            insort(self._waiting, (position, callback), key=lambda waiting: waiting[0])

    def _sync_all(self, end_position: int) -> None:
        """Sync in the caller. Blocks."""
        for file in (*self._unsynced(), self._file):
            sync_or_die(self._env, file)
        self.advance(end_position)

    def close(self) -> None:
        """End the thread. Callbacks that still wait are never called."""
        self._waiting.clear()


class ThreadSyncer(Syncer):
    """Syncs in a thread of its own; callbacks run in the loop.

    Args:
        start: starts the worker; called at the first wait, since an idle log needs none.
    """

    def __init__(
        self, env: Env, unsynced: Callable[[], Iterable[File]], start: Callable[[Callable[[], None]], SyncWorker]
    ) -> None:
        super().__init__(env, unsynced)
        self._start = start
        self._worker: SyncWorker | None = None

    def switch(self, file: File, position: int) -> None:
        if self._worker is not None and self._file is not file:
            self._leave_behind(self._worker, self._file)
        super().switch(file, position)

    def _leave_behind(self, worker: SyncWorker, file: File) -> None:
        if not worker.leave_behind(file):
            sync_or_die(self._env, file)

    def when_durable(self, position: int, end_position: int, callback: Callable[[], None]) -> None:
        if position <= self.durable_position:
            callback()
            return
        self._enqueue(position, callback)
        worker = self._worker or self._first_worker()
        if worker is not None:
            worker.request(self._file, end_position)
        else:
            self._sync_all(end_position)

    def _first_worker(self) -> SyncWorker | None:
        """Start the worker. It gets the files that were left before it existed, too: the first wait covers them.

        None: there is no descriptor for it now.
        """
        try:
            worker = self._start(self._on_done)
        except OSError as error:
            logger.warning("no thread for syncs, so the caller syncs: %s", error)
            return None
        for file in self._unsynced():
            self._leave_behind(worker, file)
        self._worker = worker
        return worker

    def _on_done(self) -> None:
        assert self._worker is not None
        done, error = self._worker.collect()
        syncs, spent_ns = self._worker.spent()
        if syncs:  # more than one only after a turn that took longer than a sync
            self.times.add(spent_ns // syncs, syncs)
        if error:
            die_of_sync(self._env, self._file.path, os.strerror(error))
        self.advance(done)

    def close(self) -> None:
        super().close()
        if self._worker is not None:
            self._worker.stop()
            self._worker = None


class InlineSyncer(Syncer):
    """Syncs at once, in the caller; for simulations."""

    def when_durable(self, position: int, end_position: int, callback: Callable[[], None]) -> None:
        if position <= self.durable_position:
            callback()  # nothing is synced, so nothing above the position becomes durable
            return
        self._enqueue(position, callback)
        self._sync_all(end_position)


def sync_or_die(env: Env, file: File) -> None:
    """fdatasync in the caller. Blocks.

    A failure ends the process: the kernel has dropped the bytes, and a second sync would report success without them.
    """
    try:
        file.sync()
    except OSError as error:
        die_of_sync(env, file.path, error)
