"""Injection of a scenario's faults, and their end."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.log.format import SEGMENT_HEADER_SIZE
from tests.sim.clients import Client, Operator
from tests.sim.machine import BadSector, CallFault
from tests.sim.scenario import Fault

if TYPE_CHECKING:
    from tests.sim.config import SimulatedConfig
    from tests.sim.engine import Engine
    from tests.sim.history import History

FOLLOW_MS = 300
"""Time within which clients follow a change of a definition."""

HEALED_RETENTION_MS = 3_600_000
UNREADABLE = {"order": "by-tenant", "attempts_max": -1, "filter": "AND AND", "retention_ms": -1}
"""A value as a later version might write it."""


class Injection:
    """Begins and ends faults of one engine.

    Attributes:
        count: faults that were begun, by kind.
    """

    def __init__(
        self, engine: "Engine", history: "History", config: "SimulatedConfig", clients: dict[str, Client]
    ) -> None:
        self.engine, self.world, self.env = engine, engine.world, engine.env
        self.history, self.config, self.clients = history, config, clients
        self.count: dict[str, int] = {}
        self._values = dict(config.stored.values)
        self._healed = False

    def begin(self, fault: Fault) -> None:
        """Begin a fault; its end is scheduled."""
        self.count[fault.kind] = self.count.get(fault.kind, 0) + 1
        self.world.note("inject", fault.kind, fault.for_ms, repr(fault.options))
        getattr(self, f"_{fault.kind}")(fault)

    def heal(self) -> None:
        """End all faults. From now on no message grows too old, so what is missing at the end was missing before."""
        self._healed = True
        for kind, name in self._values:
            if kind != "group":
                self._values[kind, name] = {"retention_ms": HEALED_RETENTION_MS}
        self.env.repair()
        self._restore()
        self._come()
        self.engine.restart()

    def _end(self, fault: Fault, end: Callable[[], None]) -> None:
        self.world.after(fault.for_ms, end)

    # -- ends of the process

    def _kill(self, fault: Fault) -> None:
        if self.engine.node is not None:
            self.engine.crash(False, "kill")

    def _power_cut(self, fault: Fault) -> None:
        if self.engine.node is not None:
            self.engine.crash(True, "power cut")

    def _kill_in_call(self, fault: Fault) -> None:
        self.env.kill_at = self.env.operations + fault.options["calls"]

    def _power_cut_in_call(self, fault: Fault) -> None:
        self.env.power_cut_at = self.env.operations + fault.options["calls"]

    def _state_lost(self, fault: Fault) -> None:
        """The process ends, and the folder of its store is gone at the next start: the log alone rebuilds it."""
        getattr(self, f"_{fault.options['how']}")(fault)
        self.env.stores.clear()

    def _stop(self, fault: Fault) -> None:
        self.engine.guarded(self.engine.stop)
        self._end(fault, self.engine.restart)

    # -- the machine

    def _calls(self, fault: Fault) -> None:
        options = fault.options
        made = CallFault(
            options["operations"], options["code"], options["share"], options["path"],
            self.world.random_of(f"fault-{fault.at_ms}-{options['operations']}"),
        )  # fmt: skip
        self.env.faults.append(made)
        self._end(fault, lambda: self.env.faults.remove(made) if made in self.env.faults else None)

    def _bad_sector(self, fault: Fault) -> None:
        paths = sorted(path for path in self.env.files if path.endswith((".seg", ".idx")))
        if not paths:
            return
        if fault.options.get("is_last"):
            self.env.sectors.append(BadSector(self._last_segment(), 0, fault.options["size"]))
            return
        path = paths[int(fault.options["share"] * len(paths)) % len(paths)]
        size = self.env.size(path)
        at = int(fault.options["share"] * 7919 * 512) % max(size, 1) & ~511
        self.env.sectors.append(BadSector(path, at, fault.options["size"]))

    def _last_segment(self) -> str:
        """The last segment with a batch, or the first one."""
        paths = sorted(path for path in self.env.files if path.endswith(".seg"))
        used = [path for path in paths if any(self.env.files[path].seen[SEGMENT_HEADER_SIZE:])]
        return used[-1] if used else paths[0]

    def _slow_sync(self, fault: Fault) -> None:
        self.env.sync_ms = fault.options["ms"]
        self._end(fault, lambda: setattr(self.env, "sync_ms", 3))

    def _slow_tasks(self, fault: Fault) -> None:
        self.env.task_ms = fault.options["ms"]
        self._end(fault, lambda: setattr(self.env, "task_ms", 3))

    def _short_writes(self, fault: Fault) -> None:
        self.env.write_bytes_max = fault.options["bytes"]
        self._end(fault, lambda: setattr(self.env, "write_bytes_max", 1 << 40))

    def _disk_full(self, fault: Fault) -> None:
        self.history.deletes_early = True  # what a full disk does to the oldest segments
        self.env.disk_used, self.env.disk_free = 1 << 40, 1 << 20
        self._end(fault, self._make_room)

    def _make_room(self) -> None:
        self.env.disk_used, self.env.disk_free = 0, 1 << 50

    def _clock_back(self, fault: Fault) -> None:
        self.history.ages.step_clock(fault.options["step_ms"])
        self.env.wall_shift_ms += fault.options["step_ms"]
        self.history.clock_steps += 1
        if self.engine.node is None:
            self.history.forget_leases()  # the engine cannot tell how long it was away

    _clock_ahead = _clock_back

    # -- the configuration

    def _config_late(self, fault: Fault) -> None:
        """The process ends, and the next one starts before it has read its configuration."""
        self.history.one_range = True
        self.history.ages.define({}, are_defined=False)
        self.config.go_away()
        self._kill(fault)
        self._end(fault, self._come)

    def _come(self) -> None:
        self.config.come()
        self.history.ages.define(self.config.stored.values)

    def _config_lost(self, fault: Fault) -> None:
        self.history.definitions_hold = False
        self._define({}, are_defined=False)
        self._end(fault, self._restore)

    def _config_unreadable(self, fault: Fault) -> None:
        self._define({key: dict(UNREADABLE) for key in self._values}, are_defined=False)
        self._end(fault, self._restore)
        if fault.options["kill"]:
            self._kill(fault)

    def _pause(self, fault: Fault) -> None:
        """An operator pauses a group."""
        self._define({**self._values, ("group", "billing"): {"paused": True}})
        self.history.paused["billing"] = self.world.now_ms
        self._end(fault, self._restore)

    def _retention(self, fault: Fault) -> None:
        """An operator changes a topic's retention, for good."""
        kind = "family" if fault.options["topic"].endswith("*") else "topic"
        self._values[kind, fault.options["topic"]] = dict(fault.options["value"])
        self._define(self._values)

    def _define(self, values: dict[tuple[str, str], dict[str, Any]], *, are_defined: bool = True) -> None:
        self.history.paused.clear()
        self.history.ages.define(values, are_defined=are_defined and self.config.view is not None)
        self.config.restore(values)

    def _restore(self) -> None:
        self._define(self._values)

    # -- clients

    def _grow(self, fault: Fault) -> None:
        """An operator gives a topic more queues; the clients follow one after the other."""
        topic, queues = fault.options["topic"], fault.options["queues"]
        found = self.engine.node and self.engine.node.store.topic(topic)
        if found is None or found.queues < self.history.queues.get(topic, 0):
            self.history.moves_hold = False  # the engine sees both growths as one
        queues = self.history.queues[topic] = max(queues, self.history.queues.get(topic, 0))
        chance = self.world.random_of(f"growth-{fault.at_ms}")
        for client in self.clients.values():
            self.world.after(chance.randint(0, FOLLOW_MS), partial(client.grow, topic, queues))

    def _leave(self, fault: Fault) -> None:
        client = self.clients.get(fault.options["name"])
        if client is not None:
            client.leave()

    def _slow_reader(self, fault: Fault) -> None:
        client = self.clients.get(fault.options["name"])
        if client is not None:
            client.slow_ms = fault.options["ms"]
            self._end(fault, lambda: setattr(client, "slow_ms", 0))

    def _reset(self, fault: Fault) -> None:
        group = fault.options["group"]
        if group not in self.history.groups:
            return
        Operator(
            self.engine, f"operator-{fault.at_ms}", self.history, around=lambda: self.history.reset(group), verb="reset",
            group=group, topic="orders", to=fault.options["to"],
        )  # fmt: skip
