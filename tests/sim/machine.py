"""The machine of a simulated engine: its clocks, its threads, and the faults of its calls."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

from engine.env.simulated import SimulatedEnv
from engine.env.simulated_threads import SYNC

if TYPE_CHECKING:
    from tests.sim.world import World

BOOTED_MS = 5_000_000
"""The monotonic clock at the start of a world. Far from the wall clock, so that code that mixes them up fails."""

OPERATIONS = (
    "open", "create", "read", "write", "sync", "allocate", "truncate", "rename", "unlink", "list", "disk",
    "store", "store_read", "store_open",
)  # fmt: skip
"""All calls of `Env`, `File` and `Store` that can fail."""


class EndAt(BaseException):
    """The process is killed within a call."""


class CallFault:
    """Calls that fail for a while.

    Args:
        operations: of OPERATIONS.
        share: of the calls, from 0 to 1.
        path: part of the path of the files; empty: all.
    """

    def __init__(self, operations: tuple[str, ...], code: int, share: float, path: str, random: Random) -> None:
        self.operations, self.code, self.share, self.path, self.random = operations, code, share, path, random

    def hits(self, operation: str, path: str) -> bool:
        """Whether this call fails."""
        return operation in self.operations and self.path in path and self.random.random() < self.share


class BadSector:
    """One range of one file that cannot be read."""

    operations = ("read",)
    code = errno.EIO

    def __init__(self, path: str, at: int, size: int) -> None:
        self.path, self.at, self.size = path, at, size


class Machine(SimulatedEnv):
    """A machine whose clock is the world's. Its disk outlives crashes of the engine on it.

    Attributes:
        process: number of the process; steps of threads of earlier ones do not run.
        faults: calls that fail now.
        sectors: ranges that cannot be read now.
        hits: number of calls that have failed, by operation.
        task_ms, sync_ms: how long a task of a background thread and a sync take at most.
        after_sync: called after each sync of the worker.
    """

    def __init__(self, world: "World", name: str, run: Callable[[Callable[[], None]], None], threads: bool) -> None:
        self.world, self._run = world, run
        self.process = 0
        self._pauses = False
        self._chance = world.random_of(f"machine-{name}")
        super().__init__(self._chance.randrange(1 << 32))
        self.started_ms = world.now_ms - BOOTED_MS
        self.faults: list[CallFault] = []
        self.sectors: list[BadSector] = []
        self.hits: dict[str, int] = {}
        self.task_ms = self.sync_ms = 3
        self.kill_at = 0
        self.after_sync: Callable[[], None] = lambda: None
        self.on_call = self._on_call
        if threads:
            self.later = self._later
        self._pauses = not threads

    @property
    def clock_ms(self) -> int:  # type: ignore[override]
        return self.world.now_ms

    @clock_ms.setter
    def clock_ms(self, value: int) -> None:
        """A pause of a task that runs in the loop: the world's time passes, and events come late.

        A task of a simulated thread takes time by itself.
        """
        if self._pauses and value > self.world.now_ms:
            self.world.paused_ms += value - self.world.now_ms
            self.world.now_ms = value

    def world_ms(self, monotonic_ms: int) -> int:
        """The world's time of a monotonic time of this machine."""
        return monotonic_ms + self.started_ms

    def end_process(self) -> None:
        super().end_process()
        self.process += 1
        self.kill_at = 0

    def repair(self) -> None:
        """End all faults of calls."""
        self.faults.clear()
        self.sectors.clear()
        self.heal()
        self.task_ms = self.sync_ms = 3
        self.write_bytes_max = 1 << 40
        self.disk_used, self.disk_free = 0, 1 << 50
        self.kill_at = self.power_cut_at = 0

    @contextmanager
    def observed(self) -> Iterator[None]:
        """A check reads the process's state: its calls meet no fault, and draw nothing from the chance of others."""
        on_call, self.on_call = self.on_call, None
        failing, self.failing = self.failing, {}
        try:
            yield
        finally:
            self.on_call, self.failing = on_call, failing

    def _on_call(self, operation: str, path: str, at: int, size: int) -> None:
        if self.kill_at and self.operations >= self.kill_at:
            raise EndAt(f"{operation} {path}")
        if not (self.faults or self.sectors):
            return
        for fault in self.faults:
            if fault.hits(operation, path):
                self._fail(operation, path, fault.code)
        for sector in self.sectors:
            if (
                operation in sector.operations
                and path == sector.path
                and at < sector.at + sector.size
                and sector.at < at + size
            ):
                self._fail(operation, path, sector.code)

    def _fail(self, operation: str, path: str, code: int) -> None:
        self.hits[operation] = self.hits.get(operation, 0) + 1
        self.world.note("fault", operation, path, errno.errorcode[code])
        raise OSError(code, "simulated", path)

    def _later(self, kind: str, step: Callable[[], None]) -> None:
        process = self.process
        longest_ms = self.sync_ms if kind == SYNC else self.task_ms

        def run() -> None:
            if self.process == process:
                self._run(step)
                if kind == SYNC:
                    self.after_sync()

        self.world.after(self._chance.randint(0, longest_ms), run)
