"""The only door to the operating system: files, syncs, locks, clock, randomness, threads, and the end of the process.

`RealEnv` is the machine; `engine.simulated.SimulatedEnv` keeps files in memory, drops what was not synced and fails
on demand. Whoever needs the system takes an Env as argument, so that a test can stand in for it.
"""

import ctypes
import errno
import fcntl
import logging
import mmap
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path

from engine.background import Background, ThreadBackground, original
from engine.errors import LockedError
from engine.store import RocksStore, Store

logger = logging.getLogger(__name__)

EXIT_FATAL = 70


class File(ABC):
    """One open file, addressed by byte offset; there is no file position."""

    path: str

    @abstractmethod
    def fileno(self) -> int:
        """The descriptor that native code may use in place of this object, or -1 when there is none."""

    @abstractmethod
    def write_at(self, data: bytes | memoryview, at: int) -> int:
        """Write and return how many bytes were taken, which may be fewer than given. Raises OSError when none were."""

    @abstractmethod
    def read_at(self, size: int, at: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    @abstractmethod
    def fetch(self, size: int, at: int) -> None:
        """Have these bytes, as far as the file has them, in the page cache. Blocks for the disk; copies nothing."""

    @abstractmethod
    def size(self) -> int:
        """Length in bytes, allocated room included."""

    @abstractmethod
    def sync(self) -> None:
        """fdatasync. Blocks. After an OSError the file's unsynced bytes are lost: end the process."""

    @abstractmethod
    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long with room on the disk for all of them; new bytes are zero. Raises OSError."""

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cut the file. Not durable before sync()."""

    @abstractmethod
    def next_data(self, at: int) -> int | None:
        """The first offset at or after `at` that may hold other bytes than zero.

        None when there is none up to the end.
        """

    @abstractmethod
    def view(self) -> "mmap.mmap | bytes":
        """All bytes as a read-only buffer; large ones are mapped. Later writes may or may not show in it."""

    @abstractmethod
    def in_memory(self, size: int, at: int) -> bool:
        """Whether these bytes, as far as the file has them, can be read without the disk just now."""

    @abstractmethod
    def forget(self, at: int, size: int) -> None:
        """Let the page cache drop these bytes. Dirty ones stay."""

    @abstractmethod
    def close(self) -> None:
        """Close; twice is no error."""


class Env(ABC):
    """What the engine may ask of the machine."""

    @abstractmethod
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. `create` makes a new, empty file (an old one of that name is emptied)."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of that name."""

    @abstractmethod
    def size(self, path: str) -> int:
        """Length of a file in bytes, 0 when there is none of that name."""

    @abstractmethod
    def list(self, directory: str) -> list[str]:
        """Names in the directory, sorted; empty when there is no such directory."""

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """Create it and its parents where missing, durable on return."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old`, atomically; durable after sync_directory()."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is no error. Durable after sync_directory()."""

    @abstractmethod
    def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable. Blocks."""

    @abstractmethod
    def disk(self, path: str) -> tuple[int, int]:
        """(bytes used, bytes free for us) of the file system that holds `path`."""

    @abstractmethod
    def lock(self, path: str) -> Callable[[], None]:
        """Take an exclusive lock that ends with the process; returns its release.

        Raises LockedError when another has it.
        """

    @abstractmethod
    def now_ms(self) -> int:
        """Wall clock."""

    @abstractmethod
    def pause(self, ms: int) -> None:
        """Block the calling thread, which may not be the loop's."""

    @abstractmethod
    def random_bytes(self, count: int) -> bytes:
        """Bytes fit for ids and keys."""

    @abstractmethod
    def die(self, reason: str) -> None:
        """End the process at once: no buffers flushed, no handlers run. Does not return (a simulated one raises)."""

    @abstractmethod
    def background(self) -> Background:
        """A new worker for tasks that block."""

    @abstractmethod
    def open_store(self, path: str, cache_bytes: int) -> Store:
        """The sorted key-value store at `path`, created when missing."""

    @abstractmethod
    def set_aside(self, path: str) -> str:
        """Rename a directory out of the way and return its new name; an earlier one of that name is removed."""

    @abstractmethod
    def has_threads(self) -> bool:
        """Whether syncs run in a thread of their own; a simulated machine does them at once, in the caller."""


PROBE_BYTES = 262_144
"""The kernel reads ahead and drops in pieces of such sizes. Looking at every byte would be copying every byte."""

CACHESTAT = 451
"""The system call's number, on every architecture; Linux 6.5 and newer have it."""

_libc = ctypes.PyDLL(None)
_nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def cached_pages(fd: int, size: int, at: int) -> int | None:
    """How many pages of these bytes are in the page cache or on their way there; None when the kernel cannot tell."""
    found = (ctypes.c_uint64 * 5)()
    refused = _libc.syscall(CACHESTAT, fd, (ctypes.c_uint64 * 2)(at, size), found, 0)
    return None if refused else found[0]


class RealFile(File):
    """A file of the machine."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def write_at(self, data: bytes | memoryview, at: int) -> int:
        return os.pwrite(self._fd, data, at)

    def read_at(self, size: int, at: int) -> bytes:
        return os.pread(self._fd, size, at)

    def fetch(self, size: int, at: int) -> None:
        os.posix_fadvise(self._fd, at, size, os.POSIX_FADV_WILLNEED)
        end = min(at + size, self.size())
        while (
            at < end
        ):  # waits for each page and copies none, in one call: each one gives Python's lock away and has to get it back
            at += os.sendfile(_nowhere, self._fd, at, end - at) or end

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            # Without preallocation a full disk shows at the write, which then is refused as a whole.
            os.ftruncate(self._fd, max(size, self.size()))

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def next_data(self, at: int) -> int | None:
        try:
            return os.lseek(self._fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            if error.errno == errno.EINVAL:
                return at
            raise

    def view(self) -> mmap.mmap | bytes:
        if self.size() == 0:
            return b""
        return mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)

    def in_memory(self, size: int, at: int) -> bool:
        size = min(size, self.size() - at)
        if size <= 0:
            return True
        cached = cached_pages(self._fd, size, at)
        if cached is not None and cached < (at + size - 1) // mmap.PAGESIZE - at // mmap.PAGESIZE + 1:
            return False  # without asking for them: a read that may not wait has the kernel fetch them all the same, for 2 ms
        byte = [bytearray(1)]
        try:
            return all(os.preadv(self._fd, byte, probe, os.RWF_NOWAIT) == 1 for probe in self._probes(size, at))
        except OSError:  # BlockingIOError; or a file system that cannot tell
            return False

    def _probes(self, size: int, at: int) -> Iterable[int]:
        end = min(at + size, self.size())
        return (*range(at, end, PROBE_BYTES), end - 1) if at < end else ()

    def forget(self, at: int, size: int) -> None:
        os.posix_fadvise(self._fd, at, size, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealEnv(Env):
    """The machine itself."""

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        return RealFile(path, os.open(path, flags, 0o640))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return 0

    def list(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory)) if os.path.isdir(directory) else []

    def make_directory(self, path: str) -> None:
        missing = [parent for parent in (Path(path), *Path(path).parents) if not parent.exists()]
        for directory in reversed(missing):
            directory.mkdir(mode=0o750, exist_ok=True)
            self.sync_directory(str(directory.parent))

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def disk(self, path: str) -> tuple[int, int]:
        found = os.statvfs(path)
        # As df counts: what is kept for root is neither used nor free.
        return (found.f_blocks - found.f_bfree) * found.f_frsize, found.f_bavail * found.f_frsize

    def lock(self, path: str) -> Callable[[], None]:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise LockedError(f"{path} is held by another engine (process {holder})") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        return lambda: os.close(fd)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def pause(self, ms: int) -> None:
        original("time", "sleep")(ms / 1000)

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def die(self, reason: str) -> None:
        logger.critical("the engine ends: %s", reason)
        for handler in logging.getLogger().handlers:
            handler.flush()
        os._exit(EXIT_FATAL)

    def background(self) -> Background:
        return ThreadBackground(self.die)

    def open_store(self, path: str, cache_bytes: int) -> Store:
        return RocksStore(path, cache_bytes)

    def set_aside(self, path: str) -> str:
        aside = path + ".damaged"
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(path, aside)
        return aside

    def has_threads(self) -> bool:
        return True
