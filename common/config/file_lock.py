"""The lock of writers of one directory."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.config.errors import StoreUnavailable
from common.config.files import mode_in, open_in_mode

LOCK_DEADLINE_S = 10.0
PAUSE_S = 0.005


def try_lock(fd: int) -> bool:
    """Take the flock of an open file if it is free. It ends with the descriptor."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's flock, which ends with its holder. Waits for other holders, co-operatively under gevent.

    Raises:
        StoreUnavailable: another process held it for LOCK_DEADLINE_S.
        OSError: the file cannot be opened.
    """
    fd = open_in_mode(path, os.O_RDONLY | os.O_CREAT, mode_in(path.parent))
    try:
        deadline = time.monotonic() + LOCK_DEADLINE_S
        while not try_lock(fd):
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"{path}: another process held the lock for {LOCK_DEADLINE_S:.0f} s: try again later"
                )
            time.sleep(PAUSE_S)  # not a blocking flock, which would block all greenlets of the process
        yield
    finally:
        os.close(fd)
