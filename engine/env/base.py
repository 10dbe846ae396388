"""The interface to the operating system: files, syncs, locks, clocks, randomness, threads, and the end of the process.

`engine.env.real.RealEnv` is the machine. `engine.env.simulated.SimulatedEnv` keeps files in memory, drops unsynced
bytes and fails on demand. Code that needs the system takes an Env as an argument, so that a test can pass another one.
"""

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable

from engine.env.background import Background
from engine.env.native import NodeClock
from engine.env.store import Store


class File(ABC):
    """One open file, addressed by byte offset; there is no file position."""

    path: str

    @abstractmethod
    def fileno(self) -> int:
        """The descriptor that native code may use instead of this object; -1: there is none."""

    @abstractmethod
    def write_at(self, data: bytes | memoryview, at: int) -> int:
        """Write and return the number of bytes written, which may be fewer than given.

        Raises OSError when it is none.
        """

    @abstractmethod
    def read_at(self, size: int, at: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    @abstractmethod
    def fetch(self, size: int, at: int) -> None:
        """Bring these bytes, as far as the file has them, into the page cache. Blocks for the disk; copies nothing."""

    @abstractmethod
    def size(self) -> int:
        """Length in bytes, including allocated space."""

    @abstractmethod
    def sync(self) -> None:
        """fdatasync. Blocks. After an OSError the file's unsynced bytes are lost: end the process."""

    @abstractmethod
    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long and reserve disk space for all of them; new bytes are zero.

        Raises OSError.
        """

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Set the length. Not durable before sync()."""

    @abstractmethod
    def next_data(self, at: int) -> int | None:
        """The first offset from `at` on that may hold other bytes than zero; None: there is none up to the end."""

    def data_end(self) -> int:
        """An offset from which on all bytes are zero, at best the first one; found without reading them."""
        return self.size()

    @abstractmethod
    def view(self) -> "mmap.mmap | bytes":
        """All bytes as a read-only buffer, mapped when the file has any.

        Later writes may or may not be visible in it.
        """

    @abstractmethod
    def in_memory(self, size: int, at: int) -> bool:
        """Whether these bytes, as far as the file has them, are in the page cache now."""

    @abstractmethod
    def forget(self, at: int, size: int) -> None:
        """Let the page cache drop these bytes. Unwritten ones stay."""

    @abstractmethod
    def clear(self, at: int, size: int) -> None:
        """Of a file in memory: give these bytes back. They are zero afterwards. Both are multiples of 4096."""

    @abstractmethod
    def close(self) -> None:
        """Close; twice is no error."""


class SyncWorker(ABC):
    """Syncs files off the loop, one sync at a time."""

    @abstractmethod
    def request(self, file: File, position: int) -> None:
        """Request a sync of everything below `position`, which lies in `file`. Returns at once."""

    @abstractmethod
    def leave_behind(self, file: File) -> bool:
        """Sync this full file before the next one; it may be closed at once. False: not taken, so the caller syncs it."""

    @abstractmethod
    def collect(self) -> tuple[int, int]:
        """(position synced so far, errno of a failed sync or 0)."""

    def spent(self) -> tuple[int, int]:
        """(number of syncs, their time in ns) since the last call. Here: none are measured."""
        return 0, 0

    @abstractmethod
    def stop(self) -> None:
        """End after the running sync. Blocks for that long."""


class Env(ABC):
    """The machine. The engine uses it only through this interface."""

    clock: NodeClock
    """Wall time and monotonic time, for native callers too."""

    @abstractmethod
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. `create` makes an empty file; an existing one of that name is emptied."""

    @abstractmethod
    def memory_file(self, name: str, size: int) -> File:
        """A file of that length without a name on the disk: its bytes take memory as they are written, until closed.

        Raises OSError.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name exists."""

    @abstractmethod
    def size(self, path: str) -> int:
        """Length of a file in bytes; 0: no such file."""

    @abstractmethod
    def list(self, directory: str) -> list[str]:
        """Names in the directory, sorted; empty: no such directory."""

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """Create the directory and its missing parents; durable on return."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old`, atomically; durable after sync_directory()."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Remove a file, if it exists. Durable after sync_directory()."""

    @abstractmethod
    def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable. Blocks."""

    @abstractmethod
    def disk(self, path: str) -> tuple[int, int]:
        """(bytes used, bytes free for this process) of the file system that holds `path`."""

    @abstractmethod
    def watch_directory(self, path: str) -> Callable[[], bool]:
        """Returns a question: whether the path still leads to the directory that it leads to now. It holds a descriptor."""

    @abstractmethod
    def lock(self, path: str) -> Callable[[], None]:
        """Take an exclusive lock that ends with the process; returns its release.

        Raises LockedError when it is taken.
        """

    @abstractmethod
    def now_ms(self) -> int:
        """Unix time in milliseconds; the same as `clock.wall_ms()`."""

    @abstractmethod
    def pause(self, ms: int) -> None:
        """Block the calling thread. Not for the loop's thread."""

    @abstractmethod
    def random_bytes(self, count: int) -> bytes:
        """Unpredictable bytes for ids and keys."""

    @abstractmethod
    def random_fraction(self) -> float:
        """A number from 0 to 1, for jitter; not fit for keys."""

    @abstractmethod
    def die(self, reason: str) -> None:
        """End the process at once, without flushing buffers or running handlers.

        Does not return; a simulated one raises.
        """

    @abstractmethod
    def background(self) -> Background:
        """A new worker for tasks that block."""

    @abstractmethod
    def open_store(self, path: str, cache_bytes: int) -> Store:
        """The sorted key-value store at `path`; created when it is missing."""

    @abstractmethod
    def set_aside(self, path: str) -> str:
        """Rename a damaged directory and return its new name; an earlier one of that name is removed."""

    @abstractmethod
    def has_threads(self) -> bool:
        """Whether there are sync workers; a simulated machine may sync in the caller."""

    @abstractmethod
    def sync_worker(self, on_done: Callable[[], None]) -> SyncWorker:
        """A new worker, which calls `on_done()` in the loop after each sync."""
