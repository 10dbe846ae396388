"""A machine in memory for tests: a power cut drops unsynced bytes and tears writes, and operations fail on demand.

    env = SimulatedEnv()
    env.power_cut_at = 17            # the 17th change from now on raises PowerCut
    env.fail("write", errno.ENOSPC)  # until env.heal()
    env.crash(Random(7))             # power cut and restart

Every change (write, sync, allocate, truncate, rename, unlink, directory sync, store write and flush) counts as one
operation. Reads can fail, but do not count. `on_call` sees every call before it acts and may raise in its place.

Threads run in the caller. With `later` set they run in steps of virtual time, as those of the real machine run beside
the loop (simulated_threads.py).
"""

import errno
from collections.abc import Callable, Iterator
from random import Random

from engine.env.background import Background, InlineBackground
from engine.env.base import Env, File, SyncWorker
from engine.env.native import NodeClock
from engine.env.simulated_content import Content
from engine.env.simulated_threads import SimulatedBackground, SimulatedSyncWorker
from engine.env.store import MemoryStore, Store
from engine.errors import LockedError


class PowerCut(BaseException):
    """The machine stops here. Only the test may catch it."""


class ProcessEnded(BaseException):
    """The engine ended its process by `Env.die`."""


class SimulatedFile(File):
    """One open file of the simulated machine."""

    def __init__(self, env: "SimulatedEnv", path: str, content: Content) -> None:
        self.path = path
        self._env = env
        self.content = content

    def fileno(self) -> int:
        return -1

    def write_at(self, data: bytes | memoryview, at: int) -> int:
        taken = min(len(data), self._env.write_bytes_max)
        try:
            self._env.step("write", self.path)
        except PowerCut:
            # The power fails during the write: the bytes may or may not reach the disk.
            self.content.change("write", at, bytes(data[:taken]))
            raise
        self.content.change("write", at, bytes(data[:taken]))
        return taken

    def read_at(self, size: int, at: int) -> bytes:
        self._env.ask("read", self.path, at, size)
        return bytes(self.content.seen[at : at + size])

    def size(self) -> int:
        return len(self.content.seen)

    def sync(self) -> None:
        self.sync_until(self.content.changed)

    def sync_until(self, changed: int) -> None:
        """Make the changes before that number durable, as a sync that began then."""
        try:
            self._env.step("sync", self.path)
        except OSError:
            self.content.drop_changes()
            raise
        self.content.sync(changed)

    def allocate(self, size: int) -> None:
        self._env.step("allocate", self.path)
        if size > len(self.content.seen):
            self.content.change("size", size)

    def truncate(self, size: int) -> None:
        self._env.step("truncate", self.path)
        self.content.change("size", size)

    def next_data(self, at: int) -> int | None:
        rest = self.content.seen[at:]
        stripped = rest.lstrip(b"\0")
        return at + len(rest) - len(stripped) if stripped else None

    def data_end(self) -> int:
        return -(-len(self.content.seen.rstrip(b"\0")) // 4096) * 4096  # as file systems tell it

    def view(self) -> bytes:
        self._env.ask("view", self.path, 0, len(self.content.seen))
        return bytes(self.content.seen)

    def fetch(self, size: int, at: int) -> None:
        self.read_at(size, at)

    def in_memory(self, size: int, at: int) -> bool:
        return self._env.in_memory

    def forget(self, at: int, size: int) -> None:
        self._env.forgotten.append((self.path, at, size))

    def clear(self, at: int, size: int) -> None:
        raise NotImplementedError("of files in memory only")

    def close(self) -> None:
        pass


class SimulatedMemoryFile(SimulatedFile):
    """A file without a disk: no operation of it fails or counts."""

    def write_at(self, data: bytes | memoryview, at: int) -> int:
        self.content.apply(self.content.seen, "write", at, bytes(data))
        return len(data)

    def read_at(self, size: int, at: int) -> bytes:
        assert self in self._env.memory_files, "it is closed"
        return bytes(self.content.seen[at : at + size])

    def clear(self, at: int, size: int) -> None:
        size = min(size, len(self.content.seen) - at)
        self.content.seen[at : at + size] = bytes(size)

    def close(self) -> None:
        if self in self._env.memory_files:
            self._env.memory_files.remove(self)


class SimulatedStore(MemoryStore):
    """A store whose writes and flushes count as operations, and whose reads can fail."""

    def __init__(self, env: "SimulatedEnv", path: str, disk: dict[bytes, bytes]) -> None:
        super().__init__(disk)
        self._env, self._path = env, path

    def get(self, key: bytes) -> bytes | None:
        self._env.ask("store_read", self._path)
        return super().get(key)

    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes] = ()) -> None:  # type: ignore[assignment]
        self._env.step("store", self._path)
        super().write(puts, deletes)

    def flush(self) -> None:
        self._env.step("store", self._path)
        super().flush()

    def last_at_or_before(self, key: bytes) -> tuple[bytes, bytes] | None:
        self._env.ask("store_read", self._path)
        return super().last_at_or_before(key)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for entry in super().scan(start, end):
            self._env.ask("store_read", self._path)
            yield entry


class SimulatedClock(NodeClock):
    """The clocks of a simulated machine. Tests advance both by `clock_ms`, and step the wall clock by `wall_shift_ms`."""

    def __init__(self, env: "SimulatedEnv") -> None:
        self._env = env

    def wall_ms(self) -> int:
        return self._env.clock_ms + self._env.wall_shift_ms

    def monotonic_ns(self) -> int:
        return (self._env.clock_ms - self._env.started_ms) * 1_000_000


class SimulatedEnv(Env):
    """The simulated machine. Writes longer than `write_bytes_max` are cut short. All chance comes from `seed`.

    Attributes:
        clock_ms: time of both clocks; it only grows.
        wall_shift_ms: by how much the wall clock was set; negative: back.
        started_ms: the time of `clock_ms` at which the monotonic clock began.
        on_call: called as (operation, path, address, size) before each call acts; may raise.
        later: runs a step of a simulated thread after a while; None: threads run in the caller.
    """

    def __init__(self, seed: int = 1) -> None:
        self.files: dict[str, Content] = {}
        self._durable_names: dict[str, Content] = {}
        self.stores: dict[str, dict[bytes, bytes]] = {}
        self._open_stores: list[SimulatedStore] = []
        self._locks: set[str] = set()
        self.clock_ms = 1_700_000_000_000
        self.wall_shift_ms = self.started_ms = 0
        self.clock = SimulatedClock(self)
        self.on_call: Callable[[str, str, int, int], None] | None = None
        self.later: Callable[[str, Callable[[], None]], None] | None = None
        self.random = Random(seed)
        self.failing: dict[str, int] = {}
        self.operations = 0
        self.power_cut_at = 0
        self.write_bytes_max = 1 << 40
        self.death = ""
        self.disk_used, self.disk_free = 0, 1 << 50
        self.in_memory = False
        self.forgotten: list[tuple[str, int, int]] = []
        self.memory_files: list[SimulatedMemoryFile] = []

    def fail(self, operation: str, error: int) -> None:
        """Refuse the operation (write, sync, allocate, read, store, …) with that errno until `heal`."""
        self.failing[operation] = error

    def heal(self) -> None:
        """Let all operations succeed again."""
        self.failing.clear()

    def step(self, operation: str, path: str = "") -> None:
        """Count a change. Raises PowerCut or OSError when it is the one that fails."""
        self.operations += 1
        if self.power_cut_at and self.operations >= self.power_cut_at:
            raise PowerCut(f"operation {self.operations}: {operation}")
        self.ask(operation, path)

    def ask(self, operation: str, path: str = "", at: int = 0, size: int = 0) -> None:
        """Raise OSError when the call fails."""
        if operation in self.failing:
            raise OSError(self.failing[operation], "simulated", path)
        if self.on_call is not None:
            self.on_call(operation, path, at, size)

    def crash(self, random: Random | None = None) -> None:
        """Cut the power and switch it on again.

        Only synced bytes are left; with a `random`, also some of the others, torn. Names are those of their directory's
        last sync.
        """
        for content in {
            id(content): content for content in (*self.files.values(), *self._durable_names.values())
        }.values():
            content.crash(random)
        self.files = dict(self._durable_names)
        for store in self._open_stores:
            kept = random.randint(0, len(store.unflushed)) if random else 0
            del store.unflushed[kept:]
            MemoryStore.flush(store)
        self.end_process()

    def end_process(self) -> None:
        """kill -9: all writes stay in the page cache; locks are free."""
        self._open_stores.clear()
        self.memory_files.clear()
        self._locks.clear()
        self.power_cut_at = 0
        self.heal()

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            self.step("create", path)
            self.files[path] = Content()
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "simulated", path)
        if not create:
            self.ask("open", path)
        return SimulatedFile(self, path, self.files[path])

    def memory_file(self, name: str, size: int) -> File:
        content = Content()
        content.seen = bytearray(size)
        self.memory_files.append(SimulatedMemoryFile(self, name, content))
        return self.memory_files[-1]

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.stores

    def size(self, path: str) -> int:
        return len(self.files[path].seen) if path in self.files else 0

    def list(self, directory: str) -> list[str]:
        self.ask("list", directory)
        prefix = directory + "/"
        return sorted(path.removeprefix(prefix) for path in self.files if path.startswith(prefix))

    def make_directory(self, path: str) -> None:
        pass

    def rename(self, old: str, new: str) -> None:
        self.step("rename", old)
        self.files[new] = self.files.pop(old)

    def unlink(self, path: str) -> None:
        self.step("unlink", path)
        self.files.pop(path, None)

    def sync_directory(self, path: str) -> None:
        self.step("sync", path)
        others = {name: content for name, content in self._durable_names.items() if _parent(name) != path}
        self._durable_names = others | {name: content for name, content in self.files.items() if _parent(name) == path}

    def disk(self, path: str) -> tuple[int, int]:
        self.ask("disk", path)
        return self.disk_used, self.disk_free

    def watch_directory(self, path: str) -> Callable[[], bool]:
        return lambda: True

    def lock(self, path: str) -> Callable[[], None]:
        if path in self._locks:
            raise LockedError(f"{path}: held by another engine")
        self._locks.add(path)
        return lambda: self._locks.discard(path)

    def now_ms(self) -> int:
        return self.clock.wall_ms()

    def pause(self, ms: int) -> None:
        self.clock_ms += ms

    def random_bytes(self, count: int) -> bytes:
        return self.random.randbytes(count)

    def random_fraction(self) -> float:
        return self.random.random()

    def die(self, reason: str) -> None:
        self.death = reason
        raise ProcessEnded(reason)

    def background(self) -> Background:
        return InlineBackground(self.die) if self.later is None else SimulatedBackground(self.later, self.die)

    def open_store(self, path: str, cache_bytes: int) -> Store:
        self.ask("store_open", path)
        store = SimulatedStore(self, path, self.stores.setdefault(path, {}))
        self._open_stores.append(store)
        return store

    def set_aside(self, path: str) -> str:
        self.stores.pop(path, None)
        return path + ".damaged"

    def has_threads(self) -> bool:
        return self.later is not None

    def sync_worker(self, on_done: Callable[[], None]) -> SyncWorker:
        assert self.later is not None
        return SimulatedSyncWorker(self.later, on_done)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
