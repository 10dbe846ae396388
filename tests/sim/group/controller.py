"""A simulated controller: the turns of one group, and links to its brokers without threads and sockets."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from common.cluster.coordination import VersionedRecord, encode_record
from common.cluster.reports import BrokerReport
from common.config.errors import ConfigError
from controller.broker_link import SILENT_S
from controller.group_controller import Heard
from controller.group_turns import GroupTurns
from controller.group_worker import RETRY_S_MAX, RETRY_S_MIN, TICK_S
from controller.hearing import Hearing
from engine.client.dial import Hello
from engine.link import layout
from engine.link.integers import U64
from engine.link.proof import CONTROLLER_ROLE
from tests.sim.group.broker import GROUP
from tests.sim.group.coordination import SimulatedCoordination
from tests.sim.group.greeting import Greeting
from tests.sim.group.machine import MILLION
from tests.sim.group.network import End, parsed
from tests.sim.group.process import Process

if TYPE_CHECKING:
    from tests.sim.group.cluster import Cluster

RESTART_MS = 500


class ReportLine:
    """The link to one broker, as `controller.broker_link` has it."""

    def __init__(self, process: "Controller", broker: str, address: str, on_change: Callable[[], None]) -> None:
        self._process, self._broker, self.address, self._on_change = process, broker, address, on_change
        self._hearing = Hearing()
        self._end: End | None = None
        self._greeting: Greeting | None = None
        self._is_closed = False
        self._pushed = 0
        self._heard_ms = 0
        self._try()

    @property
    def heard(self) -> Heard | None:
        return self._hearing.heard

    def push(self, record: VersionedRecord) -> None:
        if self._end is not None and self._hearing.lacks(record.version) and record.version > self._pushed:
            self._pushed = record.version
            payload = U64.pack(record.version) + encode_record(record.record)
            self._end.send(layout.frame(layout.RECORD, 2, payload))

    def close(self) -> None:
        self._is_closed = True
        if self._greeting is not None:
            self._greeting.give_up()
        self._drop()

    def _try(self) -> None:
        if not self._is_closed:
            self._hearing.begins(self._process.now_s())
            target = self.address.partition(":")[0]
            self._greeting = Greeting(self._process, target, CONTROLLER_ROLE, self._opened, self._lost)

    def _opened(self, end: End, hello: Hello) -> None:
        self._end, self._pushed, self._heard_ms = end, 0, self._process.world.now_ms
        end.on_frame, end.on_closed = self._on_frame, self._lost
        if (hello.broker_group, hello.broker) != (GROUP, self._broker):
            self._lost()
            return
        end.send(layout.frame(layout.REPORT, 1, b""))
        self._watch(end)

    def _watch(self, end: End) -> None:
        silent_ms = self._process.world.now_ms - self._heard_ms
        if self._end is end and silent_ms >= 1000 * SILENT_S:
            self._lost()
        elif self._end is end:
            self._process.later(int(1000 * SILENT_S) - silent_ms, lambda: self._watch(end))

    def _on_frame(self, frame: bytes) -> None:
        op, _, code, payload = parsed(frame)
        self._heard_ms = self._process.world.now_ms
        if op != layout.REPORT:
            return
        if code != layout.OK:
            self._lost()
            return
        self._hearing.reported(BrokerReport.from_value(json.loads(payload)), self._process.now_s())
        self._on_change()

    def _drop(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end.close()

    def _lost(self) -> None:
        self._drop()
        if self._is_closed:
            return
        pause_s = self._hearing.ended(self._process.now_s())
        if self.heard is None:
            self._on_change()
        self._process.later(int(1000 * pause_s) + 1, self._try)


class Controller(Process):
    """One controller. Its clock drifts, too."""

    def __init__(self, cluster: "Cluster", name: str, drift_ppm: int) -> None:
        super().__init__(cluster, name)
        self._rate = MILLION + drift_ppm
        self.coordination: SimulatedCoordination | None = None
        self.turns: GroupTurns | None = None
        self._is_due = False
        self._retry_s = RETRY_S_MIN
        self._pausing_until_ms = 0

    def now_s(self) -> float:
        """Its monotonic clock."""
        return self.world.now_ms * self._rate / MILLION / 1000

    def start(self) -> None:
        """Start the process."""
        if self.is_up:
            return
        self.begin()
        self._is_due, self._pausing_until_ms, self._retry_s = False, 0, RETRY_S_MIN
        self.coordination = self.cluster.coordination_of(self)
        self.coordination.stand(self.name)
        self.turns = GroupTurns(
            GROUP, self.coordination,
            lambda name, address: ReportLine(self, name, address, self._wake), self.now_s, lambda: self.world.now_ms,
        )  # fmt: skip
        self.coordination.watch(GROUP, self._on_change)
        self._tick()

    def end(self, *, power_cut: bool, reason: str) -> None:
        super().end(power_cut=power_cut, reason=reason)
        if self.coordination is not None:
            self.cluster.session_ends(self.coordination)
        self.coordination = self.turns = None
        self.world.after(RESTART_MS, self.start)

    def accept(self, end: End) -> None:
        end.close()

    def _on_change(self, group: str) -> None:
        if self.turns is not None:
            self.turns.changed()
            self._wake()

    def _tick(self) -> None:
        self._wake()
        self.later(int(1000 * TICK_S), self._tick)

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            self.later(max(0, self._pausing_until_ms - self.world.now_ms), self._turn)

    def _turn(self) -> None:
        self._is_due = False
        assert self.turns is not None
        try:
            self.turns.turn()
            self._retry_s = RETRY_S_MIN
        except ConfigError:
            self.turns.changed()
            self._pausing_until_ms = self.world.now_ms + int(1000 * self._retry_s)
            self._retry_s = min(RETRY_S_MAX, self._retry_s * 2)
