"""The coordination as one simulated process sees it: late, lost, expired, read-only, and with writes of unknown fate."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from common.cluster.coordination import Coordination, Registration, VersionedRecord, Watcher
from common.cluster.group_record import GroupRecord
from common.cluster.memory_coordination import MemoryCoordination
from common.config.errors import StoreUnavailable, UncertainWrite, VersionConflict

if TYPE_CHECKING:
    from tests.sim.group.process import Process

LATENCY_MS_MAX = 20
LOOK_MS = 500
"""A process in contact has had an answer within this time."""
SUSPENDED_MS_MAX = 900
"""Time until a lost contact is noticed."""
LATE_MS_MAX = 1_500
"""Time until a write whose answer was lost may happen."""


class SimulatedCoordination(Coordination):
    """One process's session. Requests are answered at once; what has changed is told late.

    Attributes:
        inner: the content, shared by all processes.
        is_read_only: reads work, writes do not.
        uncertain: share of the writes whose fate is unknown.
    """

    def __init__(self, process: "Process", inner: MemoryCoordination) -> None:
        self.process, self.world, self.inner, self._number = process, process.world, inner, process.number
        self.random = self.world.random_of(f"coordination-{process.name}-{process.number}")
        self.is_read_only = False
        self.uncertain = 0.0
        self._lost_ms: int | None = None
        self._noticed_ms = self._due_ms = 0

    # -- faults

    def lose(self) -> None:
        """The contact is lost; the session lives on."""
        if self._lost_ms is None:
            self._lost_ms, self._noticed_ms = self.world.now_ms, self.random.randint(0, SUSPENDED_MS_MAX)
            self.inner.set_available(False)

    def expire(self) -> None:
        """The server ends the session."""
        self.inner.end_session()

    def come_back(self) -> None:
        """There is contact again."""
        if self._lost_ms is not None:
            self._lost_ms = None
            self.inner.set_available(True)

    # -- requests

    def groups(self) -> list[str]:
        return self.inner.groups()

    def record(self, group: str) -> VersionedRecord | None:
        return self.inner.record(group)

    def write(self, group: str, record: GroupRecord, version: int) -> int:
        if self.is_read_only:
            raise StoreUnavailable("coordination: read-only")
        if self.random.random() >= self.uncertain:
            return self.inner.write(group, record, version)
        fate = self.random.random()
        if fate < 0.4:
            self.inner.write(group, record, version)
        elif fate < 0.7:
            server = self.process.cluster.server  # it has the request, whatever becomes of the process
            self.world.after(self.random.randint(1, LATE_MS_MAX), lambda: _write_late(server, group, record, version))
        raise UncertainWrite(group)

    def history(self, group: str) -> list[VersionedRecord]:
        return self.inner.history(group)

    def remember(self, group: str, change: VersionedRecord) -> None:
        if self.is_read_only:
            raise StoreUnavailable("coordination: read-only")
        self.inner.remember(group, change)

    def brokers(self, group: str) -> dict[str, Registration]:
        return self.inner.brokers(group)

    def register(self, group: str, broker: str, registration: Registration) -> None:
        self._soon(lambda: self.inner.register(group, broker, registration))

    def unregister(self, group: str, broker: str) -> None:
        self.inner.unregister(group, broker)

    def watch(self, group: str, watcher: Watcher) -> None:
        self.inner.watch(group, lambda name: self._soon(lambda: watcher(name)))

    def watch_groups(self, watcher: Callable[[], None]) -> None:
        self.inner.watch_groups(lambda: self._soon(watcher))

    def stand(self, name: str) -> None:
        self.inner.stand(name)

    def rank(self, number: int) -> None:
        self.inner.rank(number)

    def controller(self) -> str | None:
        return self.inner.controller()

    def is_controller(self) -> bool:
        return self.inner.is_controller()

    def contact_age_s(self) -> float:
        if self._lost_ms is None:
            return self.world.now_ms % LOOK_MS / 1000
        since_ms = self.world.now_ms - self._lost_ms
        return float("inf") if since_ms >= self._noticed_ms else since_ms / 1000

    def close(self) -> None:
        self.inner.close()

    def _soon(self, call: Callable[[], None]) -> None:
        """After a while, in the order of the calls."""
        self._due_ms = max(self._due_ms, self.world.now_ms + self.random.randint(0, LATENCY_MS_MAX))
        self.world.at(self._due_ms, lambda: self.process.run(self._number, call))


def _write_late(server: MemoryCoordination, group: str, record: GroupRecord, version: int) -> None:
    try:
        server.write(group, record, version)
    except VersionConflict:
        pass  # another change came first
