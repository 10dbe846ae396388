"""Files that are locked while their process runs, and removed by the first reader after it.

The flock makes such a file ephemeral: it ends with its holder in every case, and a reused process id cannot revive it.
"""

import os
from pathlib import Path

from common.config.file_lock import try_lock
from common.config.files import mode_in, open_in_mode


def hold(path: Path) -> int | None:
    """Create and lock the file; returns the descriptor that holds it. None: another process holds it, or probes it."""
    while True:
        fd = open_in_mode(path, os.O_RDWR | os.O_CREAT, mode_in(path.parent))
        if not try_lock(fd):
            os.close(fd)
            return None
        if is_at(path, fd):
            return fd
        os.close(fd)  # a reader took it for that of an ended process and removed it: create it again


def read_held(path: Path, size: int) -> bytes | None:
    """Up to `size` bytes of a file that is held; None: it is missing or its holder has ended, so it is removed.

    Empty when its holder has not written it yet, or this process may not read it.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except PermissionError:
        return b""  # of another user of the directory's group, which gets its right with the first write
    try:
        if not try_lock(fd):
            return os.pread(fd, size, 0)
        if is_at(path, fd):  # else another reader removed it, and the name may belong to a new process
            path.unlink()
        return None
    finally:
        os.close(fd)


def is_at(path: Path, fd: int) -> bool:
    """Whether the path still names the descriptor's file."""
    try:
        return os.stat(path).st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False
