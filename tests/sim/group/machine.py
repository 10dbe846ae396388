"""The machine of a simulated broker: a clock that drifts, and the small file of incarnations."""

from typing import TYPE_CHECKING

from engine.env.native import NodeClock
from engine.env.simulated import SimulatedEnv
from tests.sim.machine import Machine

if TYPE_CHECKING:
    from tests.sim.world import World

MILLION = 1_000_000


class DriftingClock(NodeClock):
    """The clocks of one machine: from now on faster or slower than the world's by `drift_ppm`."""

    def __init__(self, env: SimulatedEnv, drift_ppm: int) -> None:
        self._env, self._rate, self._from_ms = env, MILLION + drift_ppm, env.clock_ms

    def _now_ms(self) -> int:
        return self._from_ms + (self._env.clock_ms - self._from_ms) * self._rate // MILLION

    def wall_ms(self) -> int:
        return self._now_ms() + self._env.wall_shift_ms

    def monotonic_ns(self) -> int:
        return (self._now_ms() - self._env.started_ms) * MILLION

    def world_ms(self, monotonic_ms: int) -> int:
        """The world's time at which this clock shows that time at the earliest."""
        since_ms = monotonic_ms + self._env.started_ms - self._from_ms
        return self._from_ms + -(-since_ms * MILLION // self._rate)


class BrokerMachine(Machine):
    """A Machine whose clock drifts."""

    clock: DriftingClock  # type: ignore[assignment]

    def __init__(self, world: "World", name: str, run, threads: bool, drift_ppm: int) -> None:  # type: ignore[no-untyped-def]
        super().__init__(world, name, run, threads)
        self.clock = DriftingClock(self, drift_ppm)
        self.boots = 1

    def world_ms(self, monotonic_ms: int) -> int:
        return self.clock.world_ms(monotonic_ms)

    def now_ms(self) -> int:
        return self.clock.wall_ms()


class KeptOnMachine:
    """The file of incarnations: replaced as `common.config.files.replace` does."""

    def __init__(self, env: BrokerMachine, directory: str) -> None:
        self._env, self._directory, self._path = env, directory, f"{directory}/incarnation"

    def read(self) -> bytes:
        found = self._env.files.get(self._path)
        return b"" if found is None else bytes(found.seen)

    def replace(self, data: bytes) -> None:
        file = self._env.open(f"{self._path}.new", create=True)
        at = 0
        while at < len(data):
            at += file.write_at(data[at:], at)
        file.sync()
        self._env.rename(f"{self._path}.new", self._path)
        self._env.sync_directory(self._directory)
