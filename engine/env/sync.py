"""The sync thread in pure Python: the reference for _sync.pyx. A real thread even where gevent has patched threads."""

import os
import time
from contextlib import suppress

from common.unpatched import original


class SyncThread:
    """Syncs a file up to a position; `done_fd` becomes readable when the state has changed."""

    def __init__(self) -> None:
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC)
        self.done_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._guard = original("_thread", "allocate_lock")()
        self._ended = original("_thread", "allocate_lock")()
        self._ended.acquire()
        self._earlier: list[int] = []
        self._fd = -1
        self._wanted = self._done = self._error = 0
        self._syncs = self._spent_ns = 0
        self._stopping = False
        original("_thread", "start_new_thread")(self._run, ())

    def request(self, fd: int, position: int) -> None:
        """Request a sync of everything below `position`, which lies in file `fd`. Returns at once."""
        with self._guard:
            self._fd = fd
            self._wanted = position
        os.eventfd_write(self._wake_fd, 1)

    def leave_behind(self, fd: int) -> bool:
        """Sync this full file before the next one. The caller may close its descriptor at once."""
        with self._guard:
            self._earlier.append(os.dup(fd))
        return True

    def collect(self) -> tuple[int, int]:
        """(position synced so far, errno of a failed sync or 0). Clears `done_fd`."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.done_fd)
        with self._guard:
            return self._done, self._error

    def spent(self) -> tuple[int, int]:
        """(number of syncs, their time in ns) since the last call."""
        with self._guard:
            spent = self._syncs, self._spent_ns
            self._syncs = self._spent_ns = 0
            return spent

    def stop(self) -> None:
        """End the thread after the running sync. Blocks for that long."""
        if self._stopping:
            return
        self._stopping = True
        os.eventfd_write(self._wake_fd, 1)
        self._ended.acquire()
        os.close(self._wake_fd)
        os.close(self.done_fd)
        for fd in self._earlier:
            os.close(fd)

    def _run(self) -> None:
        while self._error == 0:
            os.read(self._wake_fd, 8)
            if self._stopping:
                break
            with self._guard:
                wanted, fd, earlier = self._wanted, self._fd, self._earlier
                self._earlier = []
            began_ns = time.monotonic_ns()
            error = _sync([*earlier, fd])
            for done in earlier:
                os.close(done)
            with self._guard:
                self._syncs += 1
                self._spent_ns += time.monotonic_ns() - began_ns
                if error:
                    self._error = error
                else:
                    self._done = wanted
            os.eventfd_write(self.done_fd, 1)
        self._ended.release()


def _sync(files: list[int]) -> int:
    """errno of the first sync that fails, 0 when none does."""
    try:
        for fd in files:
            os.fdatasync(fd)
    except OSError as error:
        return error.errno or 1
    return 0
