"""One simulation of a group: faults for a while, then all is healed and has to complete, then logs are compared."""

import logging
from typing import NamedTuple

from common.limited_log import LimitedLog
from engine.timers.missing import LOOK_MS
from tests.sim.group.broker import GROUP
from tests.sim.group.clients import GroupPuller, GroupReader
from tests.sim.group.cluster import Cluster
from tests.sim.group.injection import GroupInjection
from tests.sim.group.scenario import GroupScenario
from tests.sim.sent import Broken
from tests.sim.simulation import Exceptions, NoKinds
from tests.sim.world import World

HEAL_MS = 60_000
"""Time after all faults in which everything has to complete. A slave that failed to join rests up to 30 s."""
STEP_MS = 100
QUIET_MS = 600
"""Time in which what was acknowledged last becomes progress in the log, on all brokers."""
LOGGERS = ("penstock.engine", "engine", "penstock.controller", "penstock.sim")


class GroupOutcome(NamedTuple):
    """Result of a simulation. `broken`: the broken promise; empty when all were kept."""

    scenario: GroupScenario
    broken: str
    events: int
    kept: int
    delivered: int
    faults: dict[str, int]
    trace: str
    lines: list[str]
    epochs: int
    edges: dict[str, int]
    healed_ms: int


class GroupSimulation:
    """A scenario while it runs."""

    def __init__(self, scenario: GroupScenario, keep_lines: bool = False) -> None:
        self.scenario = scenario
        self.world = World(scenario.seed, keep_lines)
        self.cluster = Cluster(self.world, scenario)
        self.injection = GroupInjection(self.cluster)
        self.exceptions = Exceptions()
        self.healed_ms = 0

    def run(self) -> str:
        """Run it; returns the broken promise."""
        try:
            self._faults()
            self._heal()
            self._compare()
        except Broken as broken:
            return str(broken)
        except Exception as error:
            return f"{type(error).__name__}: {error}{_place(error)}"
        return self.exceptions.found[0] if self.exceptions.found else ""

    def _faults(self) -> None:
        self.cluster.start()
        began_ms = self.world.now_ms
        for fault in self.scenario.faults:
            self.world.at(began_ms + fault.at_ms, lambda fault=fault: self.injection.begin(fault))  # type: ignore[misc]
        self.world.run(self.scenario.length_ms)
        latest_ms = self.world.now_ms - self.scenario.stall_ms
        waits = [
            each for each in self.cluster.ledger.sent.values() if each.state == "open" and each.asked_ms < latest_ms
        ]
        if self.scenario.stall_ms and waits:
            raise Broken(f"{waits[0].name}: waits for longer than {self.scenario.stall_ms} ms while a slave is away")

    def _heal(self) -> None:
        self.world.note("heal")
        self.injection.heal()
        for client in self.cluster.clients:
            if not isinstance(client, GroupPuller | GroupReader):
                client.stop()
            if isinstance(client, GroupPuller | GroupReader):
                client.calm()
        began_ms, heal_ms = self.world.now_ms, HEAL_MS
        if any(broker.are_timers_missing for broker in self.cluster.brokers.values()):
            heal_ms += LOOK_MS  # until that broker starts again by itself
        while missing := self.cluster.what_is_missing() or self.cluster.what_is_undelivered():
            if self.world.now_ms - began_ms > heal_ms:
                raise Broken(f"{heal_ms / 1000:.0f} s after all faults: {missing}")
            self.world.run(STEP_MS)
        self.healed_ms = self.world.now_ms - began_ms

    def _compare(self) -> None:
        for client in self.cluster.clients:
            client.stop()
        self.world.run(QUIET_MS)
        self._complete()
        self._stand_still()
        self._complete()  # a master without clients still notes its time
        self.cluster.checks.check_equal()
        master = self.cluster.master()
        assert master is not None
        found = self.cluster.checks.messages(master)
        self.cluster.ledger.check(found)
        self.cluster.checks.check_progress(master)
        for name, broker in self.cluster.brokers.items():
            if broker is not master and self.cluster.checks.messages(broker) != found:
                raise Broken(f"the queues of {name} and {master.name} differ")

    def _complete(self) -> None:
        for _ in range(50):
            if not (missing := self.cluster.what_is_missing()):
                return
            self.world.run(STEP_MS)
        raise Broken(f"after all was quiet: {missing}")

    def _stand_still(self) -> None:
        before = self.cluster.server.record(GROUP)
        self.world.run(self.scenario.still_ms)
        if (found := self.cluster.server.record(GROUP)) != before:
            raise Broken(f"nothing happens, and the record changes: {found and found.record.reason}")


def simulate_group(scenario: GroupScenario, keep_lines: bool = False) -> GroupOutcome:
    """Run one scenario."""
    simulation = GroupSimulation(scenario, keep_lines)
    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addHandler(simulation.exceptions)
        logger.propagate = False
    kinds, LimitedLog.kinds = LimitedLog.kinds, NoKinds()
    try:
        broken = simulation.run()
    finally:
        LimitedLog.kinds = kinds
        for logger in loggers:
            logger.removeHandler(simulation.exceptions)
            logger.propagate = True
    cluster, world = simulation.cluster, simulation.world
    kept = sum(each.state == "kept" for each in cluster.ledger.sent.values())
    faults = {**simulation.injection.count, **({"lent KiB": cluster.lent >> 10} if cluster.lent else {})}
    for broker in cluster.brokers.values():
        for operation, count in broker.env.hits.items():
            faults[f"call {operation}"] = faults.get(f"call {operation}", 0) + count
    return GroupOutcome(
        scenario, broken, world.events, kept, cluster.ledger.deliveries, faults, world.trace(), world.lines or [],
        len(cluster.checks.confirmers), {"-".join(edge): count for edge, count in cluster.checks.states.items()},
        simulation.healed_ms,
    )  # fmt: skip


def _place(error: BaseException) -> str:
    trace, places = error.__traceback__, []
    while trace is not None:
        places.append(f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " " + " ".join(places[-4:])
