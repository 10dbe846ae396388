"""Atomic replacement of files: neither a crash nor a power cut leaves a partial file."""

import os
from contextlib import suppress
from pathlib import Path


def write_synced(path: Path, data: bytes) -> None:
    """Write and fsync a file (0600). A crash may leave it torn, so it is for names that nothing refers to yet.

    A refused write leaves nothing.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(data)
        os.fsync(fd)
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(fd)


def replace(path: Path, data: bytes) -> None:
    """Put `data` at `path` durably: readers and crashes see the old content or the new one. Mode 0600.

    The caller ensures that no other writer replaces the same path at the same time.
    """
    new = path.with_name(path.name + ".new")
    write_synced(new, data)
    os.rename(new, path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
