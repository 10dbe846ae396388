"""A machine in memory for tests: a power cut drops unsynced bytes and tears writes, and operations fail on demand.

    env = SimulatedEnv()
    env.power_cut_at = 17            # the 17th change from now on raises PowerCut
    env.fail("write", errno.ENOSPC)  # until env.heal()
    env.crash(Random(7))             # power cut and restart

Every change (write, sync, allocate, truncate, rename, unlink, directory sync, store write and flush) counts as one
operation.
"""

import errno
from collections.abc import Callable
from random import Random

from engine.env.background import Background, InlineBackground
from engine.env.base import Env, File
from engine.env.native import NodeClock
from engine.env.store import MemoryStore, Store
from engine.errors import LockedError

SECTOR = 512


class PowerCut(BaseException):
    """The machine stops here. Only the test may catch it."""


class ProcessEnded(BaseException):
    """The engine ended its process by `Env.die`."""


class Content:
    """A file's bytes as readers see them, as the disk has them, and the changes in between."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self.durable = bytearray()
        self.changes: list[tuple[str, int, bytes]] = []

    def apply(self, target: bytearray, kind: str, at: int, data: bytes) -> None:
        """Make one change."""
        if kind == "size":
            if at < len(target):
                del target[at:]
            target.extend(bytes(at - len(target)))
            return
        if len(target) < at + len(data):
            target.extend(bytes(at + len(data) - len(target)))
        target[at : at + len(data)] = data

    def change(self, kind: str, at: int, data: bytes = b"") -> None:
        """Make a change that is not durable yet."""
        self.apply(self.seen, kind, at, data)
        self.changes.append((kind, at, data))

    def sync(self) -> None:
        """Make all changes durable."""
        self.durable = bytearray(self.seen)
        self.changes.clear()

    def crash(self, random: Random | None) -> None:
        """Go back to the durable bytes, or to these and any part of the changes since, torn at sectors."""
        for kind, at, data in self.changes if random else []:
            assert random is not None
            chance = random.random()
            if kind == "size" or chance < 0.4:
                if chance < 0.7:
                    self.apply(self.durable, kind, at, data)
            elif chance < 0.8:
                for start in range(0, len(data), SECTOR):
                    if random.random() < 0.5:
                        self.apply(self.durable, kind, at + start, data[start : start + SECTOR])
        self.seen = bytearray(self.durable)
        self.changes.clear()


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
            self._env.step("write")
        except PowerCut:
            # The power fails during the write: the bytes may or may not reach the disk.
            self.content.change("write", at, bytes(data[:taken]))
            raise
        self.content.change("write", at, bytes(data[:taken]))
        return taken

    def read_at(self, size: int, at: int) -> bytes:
        if "read" in self._env.failing:
            raise OSError(self._env.failing["read"], "simulated")
        return bytes(self.content.seen[at : at + size])

    def size(self) -> int:
        return len(self.content.seen)

    def sync(self) -> None:
        self._env.step("sync")
        self.content.sync()

    def allocate(self, size: int) -> None:
        self._env.step("allocate")
        if size > len(self.content.seen):
            self.content.change("size", size)

    def truncate(self, size: int) -> None:
        self._env.step("truncate")
        self.content.change("size", size)

    def next_data(self, at: int) -> int | None:
        rest = self.content.seen[at:]
        stripped = rest.lstrip(b"\0")
        return at + len(rest) - len(stripped) if stripped else None

    def view(self) -> bytes:
        return bytes(self.content.seen)

    def fetch(self, size: int, at: int) -> None:
        self.read_at(size, at)

    def in_memory(self, size: int, at: int) -> bool:
        return self._env.in_memory

    def forget(self, at: int, size: int) -> None:
        self._env.forgotten.append((self.path, at, size))

    def close(self) -> None:
        pass


class SimulatedStore(MemoryStore):
    """A store whose writes and flushes count as operations."""

    def __init__(self, env: "SimulatedEnv", disk: dict[bytes, bytes]) -> None:
        super().__init__(disk)
        self._env = env

    def write(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes] = ()) -> None:  # type: ignore[assignment]
        self._env.step("store")
        super().write(puts, deletes)

    def flush(self) -> None:
        self._env.step("store")
        super().flush()


class SimulatedClock(NodeClock):
    """The clocks of a simulated machine: both follow `SimulatedEnv.clock_ms`, which tests set."""

    def __init__(self, env: "SimulatedEnv") -> None:
        self._env = env

    def wall_ms(self) -> int:
        return self._env.clock_ms

    def monotonic_ns(self) -> int:
        return self._env.clock_ms * 1_000_000


class SimulatedEnv(Env):
    """The simulated machine. Writes longer than `write_bytes_max` are cut short. All chance comes from `seed`."""

    def __init__(self, seed: int = 1) -> None:
        self.files: dict[str, Content] = {}
        self._durable_names: dict[str, Content] = {}
        self.stores: dict[str, dict[bytes, bytes]] = {}
        self._open_stores: list[SimulatedStore] = []
        self._locks: set[str] = set()
        self.clock_ms = 1_700_000_000_000
        self.clock = SimulatedClock(self)
        self.random = Random(seed)
        self.failing: dict[str, int] = {}
        self.operations = 0
        self.power_cut_at = 0
        self.write_bytes_max = 1 << 40
        self.death = ""
        self.disk_used, self.disk_free = 0, 1 << 50
        self.in_memory = False
        self.forgotten: list[tuple[str, int, int]] = []

    def fail(self, operation: str, error: int) -> None:
        """Refuse the operation (write, sync, allocate, read, store, …) with that errno until `heal`."""
        self.failing[operation] = error

    def heal(self) -> None:
        """Let all operations succeed again."""
        self.failing.clear()

    def step(self, operation: str) -> None:
        """Count a change. Raises PowerCut or OSError when it is the one that fails."""
        self.operations += 1
        if self.power_cut_at and self.operations >= self.power_cut_at:
            raise PowerCut(f"operation {self.operations}: {operation}")
        if operation in self.failing:
            raise OSError(self.failing[operation], "simulated")

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
        self._locks.clear()
        self.power_cut_at = 0
        self.heal()

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            self.step("create")
            self.files[path] = Content()
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "simulated", path)
        return SimulatedFile(self, path, self.files[path])

    def exists(self, path: str) -> bool:
        return path in self.files

    def size(self, path: str) -> int:
        return len(self.files[path].seen) if path in self.files else 0

    def list(self, directory: str) -> list[str]:
        prefix = directory + "/"
        return sorted(path.removeprefix(prefix) for path in self.files if path.startswith(prefix))

    def make_directory(self, path: str) -> None:
        pass

    def rename(self, old: str, new: str) -> None:
        self.step("rename")
        self.files[new] = self.files.pop(old)

    def unlink(self, path: str) -> None:
        self.step("unlink")
        self.files.pop(path, None)

    def sync_directory(self, path: str) -> None:
        self.step("sync")
        prefix = path + "/"
        others = {name: content for name, content in self._durable_names.items() if not name.startswith(prefix)}
        self._durable_names = others | {
            name: content for name, content in self.files.items() if name.startswith(prefix)
        }

    def disk(self, path: str) -> tuple[int, int]:
        return self.disk_used, self.disk_free

    def lock(self, path: str) -> Callable[[], None]:
        if path in self._locks:
            raise LockedError(f"{path}: held by another engine")
        self._locks.add(path)
        return lambda: self._locks.discard(path)

    def now_ms(self) -> int:
        return self.clock_ms

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
        return InlineBackground()

    def open_store(self, path: str, cache_bytes: int) -> Store:
        store = SimulatedStore(self, self.stores.setdefault(path, {}))
        self._open_stores.append(store)
        return store

    def set_aside(self, path: str) -> str:
        self.stores.pop(path, None)
        return path + ".damaged"

    def has_threads(self) -> bool:
        return False
