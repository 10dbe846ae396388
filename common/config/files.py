"""Atomic replacement of files: neither a crash nor a power cut leaves a partial file."""

import os
import stat
from contextlib import suppress
from pathlib import Path


def mode_in(directory: Path) -> int:
    """The mode of a new file: its owner's; where the directory has the setgid bit, its group may do what it may there.

    Without the bit, a directory that a usual umask left open to its group would give away the secrets below it.
    """
    mode = directory.stat().st_mode
    return 0o600 | (mode & 0o060 if mode & stat.S_ISGID else 0)


def open_in_mode(path: Path, flags: int, mode: int) -> int:
    """As os.open, whatever the umask; the mode of an existing file stays."""
    exists = path.exists()
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    if not exists and mode != 0o600:
        os.fchmod(fd, mode)
    return fd


def write_synced(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write and fsync a file. A crash may leave it torn, so it is for names that nothing refers to yet.

    A refused write leaves nothing. Raises OSError with the file's name, which the kernel's own of a write lacks.
    """
    fd = open_in_mode(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(data)
        os.fsync(fd)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(fd)


def replace(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Put `data` at `path` durably: readers and crashes see the old content or the new one.

    The caller ensures that no other writer replaces the same path at the same time.
    """
    new = path.with_name(path.name + ".new")
    write_synced(new, data, mode)
    os.rename(new, path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
