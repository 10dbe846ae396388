"""Scenarios of a broker group: what runs and what goes wrong in one simulation. Values only, so that they shrink."""

from dataclasses import dataclass, field, replace
from typing import Any

from tests.sim.scenario import Fault


@dataclass(frozen=True)
class GroupScenario:
    """One simulation.

    Attributes:
        length_ms: time during which faults come. The time to heal follows.
        drifts_ppm: of the machines' clocks: brokers from the front, controllers from the back.
        session_ms: longest time after which the coordination drops the session of a process that has ended.
        topics: durability classes that are used.
        pause_ms: average time between two sends of a client; pulls and reads come as often.
        tick_ms: time between two ticks of a broker, which a busy loop makes late.
        retry: share of the deliveries that the group gives back.
        slave_reads: the reader by position asks slaves, too.
        stall_ms: longest time for which a send may wait at the end of the faults; 0: any.
        still_ms: time at the end in which nobody asks for anything, and the group has to stay as it is.
        log, node: settings.
    """

    seed: int
    length_ms: int
    brokers: int
    controllers: int
    faults: tuple[Fault, ...]
    drifts_ppm: tuple[int, ...]
    session_ms: int = 2_000
    topics: tuple[str, ...] = ("memory", "fsync", "replicated", "everywhere")
    timers: bool = True
    pause_ms: int = 60
    tick_ms: int = 20
    bytes_max: int = 300
    retry: float = 0.0
    slave_reads: bool = False
    stall_ms: int = 0
    still_ms: int = 0
    threads: bool = True
    log: dict[str, Any] = field(default_factory=dict)
    node: dict[str, int] = field(default_factory=dict)

    def without(self, fault: Fault) -> "GroupScenario":
        """The same without one fault."""
        return replace(self, faults=tuple(each for each in self.faults if each is not fault))

    def smaller(self) -> list["GroupScenario"]:
        """Simpler scenarios, of which one may still fail."""
        found = [self.without(fault) for fault in self.faults]
        found += [replace(self, topics=tuple(each for each in self.topics if each != topic)) for topic in self.topics]
        if self.timers:
            found.append(replace(self, timers=False))
        if any(self.drifts_ppm):
            found.append(replace(self, drifts_ppm=tuple(0 for _ in self.drifts_ppm)))
        latest = max((fault.at_ms + 200 for fault in self.faults), default=0)
        found += [
            replace(self, length_ms=length_ms)
            for length_ms in (self.length_ms // 2, self.length_ms * 3 // 4)
            if latest <= length_ms >= 300
        ]
        return found

    def describe(self) -> str:
        """A text for people."""
        lines = [
            f"seed {self.seed}, {self.length_ms} ms, {self.brokers} brokers, {self.controllers} controllers, "
            f"session {self.session_ms} ms, topics {self.topics}, timers={self.timers}, slave_reads={self.slave_reads}, "
            f"threads={self.threads}, drifts {self.drifts_ppm}, log={self.log}, node={self.node}"
        ]
        lines += [f"  at {each.at_ms} ms for {each.for_ms} ms: {each.kind} {each.options}" for each in self.faults]
        return "\n".join(lines)
