"""Injection of a group's faults, and their end."""

import errno
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from common.cluster.group_record import GroupRecord
from common.cluster.reports import BrokerReport, BrokerView
from common.config.errors import ConfigError
from controller.planned_switch import switched
from engine.broker.hand_over import HAND_OVER_MS
from engine.errors import EngineError
from tests.sim.group.broker import GROUP, Broker
from tests.sim.group.cluster import Cluster
from tests.sim.group.coordination import SimulatedCoordination
from tests.sim.machine import CallFault
from tests.sim.scenario import Fault

EXPIRY_MS = 2_000
"""Time without contact after which the coordination drops a session."""


class GroupInjection:
    """Begins and ends faults. `count`: those that had an effect, by kind."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.world, self.network = cluster, cluster.world, cluster.network
        self.count: dict[str, int] = {}
        self._ends: list[Callable[[], None]] = []

    def begin(self, fault: Fault) -> None:
        """Begin a fault; its end is scheduled."""
        self.world.note("inject", fault.kind, fault.for_ms, repr(fault.options))
        self._note(fault.kind)
        getattr(self, f"_{fault.kind}")(fault)

    def heal(self) -> None:
        """End all faults."""
        for end in list(self._ends):
            end()
        for broker in self.cluster.brokers.values():
            broker.env.repair()
            broker.env.wall_shift_ms = 0
            broker.start()
        for controller in self.cluster.controllers.values():
            controller.start()
        self.network.slow_ms = 2

    def _until(self, fault: Fault, end: Callable[[], None]) -> None:
        """Have the fault ended by `end()`, once."""

        def once() -> None:
            if once in self._ends:
                self._ends.remove(once)
                end()

        self._ends.append(once)
        self.world.after(fault.for_ms, once)

    def _broker(self, fault: Fault) -> Broker:
        """The broker of the fault: by name, or the one that has the role at this time."""
        who, brokers = fault.options["who"], self.cluster.brokers
        found = self.cluster.server.record(GROUP)
        master = next(iter(brokers)) if found is None else found.record.master
        if who == "master":
            return brokers[master]
        if who == "slave":
            return next(each for name, each in brokers.items() if name != master)
        return brokers.get(who) or brokers[master]

    # -- processes

    def _kill(self, fault: Fault) -> None:
        broker = self._broker(fault)
        if broker.is_up:
            broker.restart_ms = max(1, fault.for_ms)
            broker.end(power_cut=False, reason="killed")

    def _power_cut(self, fault: Fault) -> None:
        self._cut_power(self._broker(fault), fault.for_ms)

    def _cut_power(self, broker: Broker, for_ms: int) -> None:
        if broker.is_up:
            broker.restart_ms = max(1, for_ms)
            broker.end(power_cut=True, reason="power cut")

    def _power_cut_all(self, fault: Fault) -> None:
        for broker in self.cluster.brokers.values():
            self._cut_power(broker, fault.for_ms + self.cluster.random.randint(0, 1_000))

    def _kill_all(self, fault: Fault) -> None:
        for broker in self.cluster.brokers.values():
            if broker.is_up:
                broker.restart_ms = max(1, fault.for_ms + self.cluster.random.randint(0, 1_000))
                broker.end(power_cut=False, reason="killed")

    def _kill_in_call(self, fault: Fault) -> None:
        env = self._broker(fault).env
        env.kill_at = env.operations + fault.options["calls"]

    def _power_cut_in_call(self, fault: Fault) -> None:
        env = self._broker(fault).env
        env.power_cut_at = env.operations + fault.options["calls"]

    def _stop(self, fault: Fault) -> None:
        broker = self._broker(fault)
        if broker.is_up and not broker.is_stopped:
            broker.restart_ms = max(1, fault.for_ms)
            broker.guarded(broker.stop)

    def _pause(self, fault: Fault) -> None:
        """SIGSTOP, and SIGCONT. The session of a process that stands still for long ends, but in a store of files."""
        broker = self._broker(fault)
        broker.stop_signal()
        if not fault.options.get("keeps_session"):
            self._expire_later(broker.coordination, fault)
        self._until(fault, broker.continue_signal)

    def _pause_controller(self, fault: Fault) -> None:
        controller = self.cluster.controllers[fault.options["who"]]
        controller.stop_signal()
        self._expire_later(controller.coordination, fault)
        self._until(fault, controller.continue_signal)

    def _kill_controller(self, fault: Fault) -> None:
        controller = self.cluster.controllers[fault.options["who"]]
        if controller.is_up:
            controller.end(power_cut=False, reason="killed")

    # -- the network

    def _partition(self, fault: Fault) -> None:
        """Directions between two sets of processes carry nothing."""
        pairs = [tuple(pair) for pair in fault.options["pairs"]]
        self.network.cut(pairs)
        self._until(fault, partial(self.network.heal, pairs))

    def _break_links(self, fault: Fault) -> None:
        one, other = fault.options["between"]
        self.network.break_between(one, other)

    def _half_open(self, fault: Fault) -> None:
        """A device between two processes resets the connections of one; the other's kernel finds out later."""
        kept = self.network.break_one_side(*fault.options["between"])
        self._until(fault, lambda: [each.lost() for each in kept])

    def _slow_network(self, fault: Fault) -> None:
        self.network.slow_ms = fault.options["ms"]
        self._until(fault, lambda: setattr(self.network, "slow_ms", 2))

    # -- the coordination

    def _contact_lost(self, fault: Fault) -> None:
        for name in fault.options["names"]:
            coordination = self.cluster.servers[name].coordination  # type: ignore[attr-defined]
            if coordination is not None:
                coordination.lose()
                self._expire_later(coordination, fault)
                self._until(fault, coordination.come_back)

    def _expire_later(self, coordination: SimulatedCoordination | None, fault: Fault) -> None:
        if coordination is not None and fault.for_ms > EXPIRY_MS:
            self.world.after(EXPIRY_MS, coordination.expire)

    def _session_expired(self, fault: Fault) -> None:
        for name in fault.options["names"]:
            coordination = self.cluster.servers[name].coordination  # type: ignore[attr-defined]
            if coordination is not None:
                coordination.expire()

    def _read_only(self, fault: Fault) -> None:
        self._on_controllers(fault, "is_read_only", True, False)

    def _uncertain(self, fault: Fault) -> None:
        self._on_controllers(fault, "uncertain", 0.7, 0.0)

    def _on_controllers(self, fault: Fault, name: str, value: object, healed: object) -> None:
        for controller in self.cluster.controllers.values():
            coordination = controller.coordination
            if coordination is not None:
                setattr(coordination, name, value)
                self._until(fault, partial(setattr, coordination, name, healed))

    # -- machines

    def _calls(self, fault: Fault) -> None:
        options = fault.options
        self._fail_calls(fault, options["operations"], options["code"], options["share"], options["path"])

    def _fail_calls(self, fault: Fault, operations: tuple[str, ...], code: int, share: float, path: str) -> None:
        env = self._broker(fault).env
        chance = self.world.random_of(f"fault-{fault.at_ms}-{operations}")
        made = CallFault(operations, code, share, path, chance)
        env.faults.append(made)
        self._until(fault, lambda: env.faults.remove(made) if made in env.faults else None)

    def _slow_disk(self, fault: Fault) -> None:
        env = self._broker(fault).env
        env.sync_ms = env.task_ms = fault.options["ms"]
        self._until(fault, lambda: setattr(env, "sync_ms", 3))

    def _disk_full(self, fault: Fault) -> None:
        """No room all at once: without the warning by which the log deletes its oldest segments in time."""
        self._fail_calls(fault, ("allocate", "create", "write", "store"), errno.ENOSPC, 1.0, "")

    def _clock_step(self, fault: Fault) -> None:
        self._broker(fault).env.wall_shift_ms += fault.options["step_ms"]

    # -- operators

    def _switch(self, fault: Fault) -> None:
        """`penstock broker switch`: an operator's command asks the brokers, has the master hand over, writes the record."""
        cluster = self.cluster
        found = cluster.server.record(GROUP)
        if found is None:
            return
        views = {}
        for name, each in cluster.server.brokers(GROUP).items():
            views[name] = BrokerView(each.incarnation, _reported(cluster.brokers[name]))
        record = switched(found.version, found.record, views)
        if isinstance(record, str):
            return
        write = partial(self._write, record, found.version)
        master = cluster.brokers[found.record.master]
        if not fault.options.get("hands_over", fault.at_ms % 4):  # as when the command does not reach the master
            write()
        else:
            master.run(master.number, lambda: self._hand_over(master, found.version, write, fault.options))

    def _hand_over(self, master: Broker, version: int, write: Callable[[], None], options: dict[str, Any]) -> None:
        """In the master's process."""

        def answered(reason: str) -> None:
            self.world.note(master.name, "hands over", version, reason)
            if not reason:
                self.cluster.checks.invariants.handed_over(master)
            late_ms = options.get("late_ms", self.cluster.random.choice((1, 5, 20, 700, 0)))
            if not reason and late_ms:  # else the command ends before it has written
                self._note("switched late" if late_ms > HAND_OVER_MS else "handed over")
                self.world.after(late_ms, write)

        if master.core is not None:
            master.core.hand_over(version, answered)

    def _write(self, record: GroupRecord, version: int) -> None:
        with suppress(ConfigError):
            self.cluster.server.write(GROUP, record, version)
            self._note("switched")

    def _note(self, kind: str) -> None:
        self.count[kind] = self.count.get(kind, 0) + 1


def _reported(broker: Broker) -> BrokerReport | None:
    """The broker's answer to an operator; None: it does not answer, or its disk fails."""
    try:
        return None if broker.core is None or broker.is_stopped else broker.core.report()
    except (OSError, EngineError):
        return None
