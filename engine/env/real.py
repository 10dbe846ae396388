"""The real machine as an `Env`: files, locks, clock, randomness and threads of this process."""

import ctypes
import errno
import fcntl
import logging
import mmap
import os
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from common.unpatched import original
from engine.env.background import Background, ThreadBackground
from engine.env.base import Env, File, SyncWorker
from engine.env.native import NodeClock
from engine.env.store import RocksStore, Store
from engine.env.sync_worker import ThreadSyncWorker
from engine.errors import LockedError

logger = logging.getLogger(__name__)

EXIT_FATAL = 70

PROBE_BYTES = 262_144
"""The kernel reads ahead and drops pages in ranges of such sizes. Probing every byte would copy every byte."""

CACHESTAT = 451
"""The system call's number, on every architecture; Linux 6.5 and newer have it."""

_libc = ctypes.PyDLL(None)
_nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def cached_pages(fd: int, size: int, at: int) -> int | None:
    """Number of pages of these bytes in the page cache or being read into it; None when the kernel cannot tell."""
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
        # sendfile waits for each page and copies none. One call for all of them: each call releases the GIL and has to
        # take it again.
        while at < end:
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

    def data_end(self) -> int:
        at = end = 0
        while (data := self.next_data(at)) is not None:
            try:
                at = end = os.lseek(self._fd, data, os.SEEK_HOLE)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                return self.size()
        return end

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
            # No probe of a missing page: even a read that may not wait makes the kernel fetch it, for 2 ms.
            return False
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

    def clear(self, at: int, size: int) -> None:
        with mmap.mmap(self._fd, min(size, self.size() - at), offset=at) as mapped:
            mapped.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealEnv(Env):
    """The machine itself."""

    clock = NodeClock()

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        return RealFile(path, os.open(path, flags, 0o640))

    def memory_file(self, name: str, size: int) -> File:
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, size)
        except OSError:
            os.close(fd)
            raise
        return RealFile(name, fd)

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
        # As df counts: space reserved for root is neither used nor free.
        return (found.f_blocks - found.f_bfree) * found.f_frsize, found.f_bavail * found.f_frsize

    def watch_directory(self, path: str) -> Callable[[], bool]:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # its inode number is not given away meanwhile

        def is_there() -> bool:
            try:
                return os.path.samestat(os.stat(path), os.fstat(fd))
            except FileNotFoundError:
                return False

        return is_there

    def lock(self, path: str) -> Callable[[], None]:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise LockedError(
                f"{path}: held by another engine (process {holder}): stop it or use another directory"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        return lambda: os.close(fd)

    def now_ms(self) -> int:
        return self.clock.wall_ms()

    def pause(self, ms: int) -> None:
        original("time", "sleep")(ms / 1000)

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def random_fraction(self) -> float:
        return random.random()

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

    def sync_worker(self, on_done: Callable[[], None]) -> SyncWorker:
        return ThreadSyncWorker(on_done)
