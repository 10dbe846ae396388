"""One simulation of a scenario: makes the world, injects the faults, heals everything, and checks what was promised."""

import logging
from collections.abc import Callable
from typing import NamedTuple

from common.limited_log import LimitedLog, LineKind
from engine.config import LogConfig
from engine.errors import EngineError
from engine.timers.missing import LOOK_MS
from tests.sim.asker import Asker
from tests.sim.clients import Client, Sender
from tests.sim.config import SimulatedConfig
from tests.sim.consumer import Consumer
from tests.sim.copier import Copier, check_copied
from tests.sim.delayed import DelayedSender
from tests.sim.engine import Engine
from tests.sim.history import History
from tests.sim.injection import Injection
from tests.sim.opener import Opener
from tests.sim.scenario import Scenario
from tests.sim.sent import Broken, GroupRules
from tests.sim.truth import Truth, check_durable, is_quiet
from tests.sim.world import World

HEAL_MS = 100_000
"""Time after all faults in which everything has to be delivered."""

STEP_MS = 400
RULES = {
    "billing": GroupRules("billing", ()),
    "desk": GroupRules("desk", ()),
    "late": GroupRules("late", ()),
    "reds": GroupRules("reds", (), tags=("red",)),
    "bykey": GroupRules("bykey", (), order="key", attempts_max=1000),
    "strict": GroupRules("strict", (), attempts_max=3),
    "idle": GroupRules("idle", (), paused=True),
    "openers": GroupRules("openers", ()),
}
KINDS: dict[str, type[Client]] = {
    "sender": Sender, "delayed": DelayedSender, "asker": Asker, "consumer": Consumer, "opener": Opener,
    "copier": Copier,
}  # fmt: skip


class Outcome(NamedTuple):
    """Result of a simulation. `broken`: the broken promise; empty when all were kept."""

    scenario: Scenario
    broken: str
    events: int
    kept: int
    delivered: int
    faults: dict[str, int]
    trace: str
    lines: list[str]


class Exceptions(logging.Handler):
    """Exceptions that the engine has caught and logged. Those of injected faults are expected."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []
        self.history: History | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.history is not None and _may_repeat(record.getMessage()):
            self.history.may_repeat = True
        if self.history is not None:
            self.history.reported(record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            if not isinstance(error, OSError | EngineError):
                self.found.append(f"{record.getMessage()}: {type(error).__name__}: {error} {_place(error)}")


def _may_repeat(line: str) -> bool:
    """Whether a start could not read what delayed messages had become: it says so, or counts those bytes as lost."""
    if "a batch of topics" in line or "a batch of progress" in line or "a batch of counters" in line:
        return False
    return "may come again" in line or ("bytes lost" in line and ("cannot read" in line or "cannot be read" in line))


class NoKinds(dict[tuple[str, str, str], LineKind]):
    """Kinds of log lines that are never remembered, so that no exception hides behind an earlier one."""

    def get(self, key: object, default: object = None) -> None:  # type: ignore[override]
        return None

    def setdefault(self, key: object, default: LineKind) -> LineKind:  # type: ignore[override]
        return default


def _place(error: BaseException) -> str:
    trace, places = error.__traceback__, []
    while trace is not None:
        places.append(f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " ".join(places[-4:])


class Simulation:
    """A scenario while it runs."""

    def __init__(self, scenario: Scenario, keep_lines: bool = False) -> None:
        self.scenario = scenario
        self.world = World(scenario.seed, keep_lines)
        self.exceptions = Exceptions()
        self.config = SimulatedConfig()
        self.config.put("group", "reds", filter="red")
        self.config.put("group", "bykey", order="key", attempts_max=1000)
        self.config.put("group", "strict", attempts_max=3)
        self.config.put("group", "idle", paused=True)
        for name, value in scenario.topics.items():
            self.config.put("family" if name.endswith("*") else "topic", name, **value)
        self.engine: Engine = self.world.engine(
            "engine", LogConfig(start_wait_ms=0, **scenario.log), node=scenario.node, config=self.config, threads=scenario.threads,
            staged=scenario.staged, restarts=True,
        )  # fmt: skip
        self.history = History(self.engine, tuple(RULES.values()), scenario.log["retention_ms"])
        self.history.ages.define(self.config.stored.values)
        self.engine.env.after_sync = lambda: check_durable(self.engine)
        self.engine.before_crash = self._before_crash
        self.exceptions.history = self.history
        self.clients = {
            part.name: KINDS[part.kind](self.engine, part.name, self.history, **part.options) for part in scenario.parts
        }
        self.injection = Injection(self.engine, self.history, self.config, self.clients)
        for fault in scenario.faults:
            self.world.after(fault.at_ms, _inject(self.injection, fault))

    def _before_crash(self) -> None:
        check_durable(self.engine)
        self.history.before_crash()

    def run(self) -> str:
        """Run it; returns the broken promise, or nothing."""
        root = logging.getLogger("penstock.engine"), logging.getLogger("engine"), logging.getLogger("penstock.sim")
        for logger in root:
            logger.addHandler(self.exceptions)
            logger.propagate = False
        kinds, LimitedLog.kinds = LimitedLog.kinds, NoKinds()
        try:
            self.world.run(self.scenario.length_ms)
            self._heal()
            self._check()
        except Broken as broken:
            return str(broken)
        except Exception as error:
            return f"{type(error).__name__}: {error} {_place(error)}"
        finally:
            LimitedLog.kinds = kinds
            for logger in root:
                logger.removeHandler(self.exceptions)
                logger.propagate = True
        return self.exceptions.found[0] if self.exceptions.found else ""

    def outcome(self, broken: str) -> Outcome:
        """The result."""
        kept = sum(sent.state == "kept" for sent in self.history.sent.values())
        faults = {**self.engine.env.hits, **self.injection.count}
        lines = self.world.lines or []
        return Outcome(
            self.scenario, broken, self.world.events, kept, self.history.deliveries, faults, self.world.trace(), lines
        )

    def _heal(self) -> None:
        """End all faults and wait until everything is delivered."""
        self.injection.heal()
        for client in self.clients.values():
            client.slow_ms = 0
            client.stop()
        if self.engine.node is not None and self.engine.node.timers.are_missing:
            self.world.run(LOOK_MS)  # until it starts again by itself
        if self.engine.node is not None and self.engine.node.timers.are_missing:
            self.engine.crash(power_cut=False)  # an operator starts it again, as its log says
        self.world.note("healed")
        until_ms = self.world.now_ms + HEAL_MS
        self.world.run(2_000)
        for client in self.clients.values():
            if isinstance(client, Consumer):
                client.calm()
        if self.engine.node is None:
            self.world.run(3_000)
        if self.engine.node is None:
            raise Broken(f"the engine does not start after all faults have ended: {self.engine.failed_start}")
        self._run_until_quiet(until_ms)
        if self.engine.env.hits.get("read"):
            self._restart()

    def _run_until_quiet(self, until_ms: int) -> None:
        quiet = 0
        while quiet < 2 and self.world.now_ms < until_ms:
            self.world.run(STEP_MS)
            quiet = quiet + 1 if is_quiet(self.engine, self.history) else 0

    def _restart(self) -> None:
        """After failed reads some indexes are of what could be read: the next process makes them again.

        Retention was raised, so it delivers again what was hidden and is not deleted.
        """
        self.engine.guarded(self.engine.stop)
        self.engine.restart()
        self.world.run(4 * STEP_MS)
        self._run_until_quiet(self.world.now_ms + HEAL_MS)

    def _check(self) -> None:
        if self.exceptions.found:
            raise Broken(self.exceptions.found[0])
        check_durable(self.engine)
        Truth(self.engine, self.history).check()
        assert self.engine.node is not None
        history = self.history
        may_lack = history.deletes_early or history.is_damaged or bool(history.ages.default_ms)
        may_repeat = {"bad_sector", "state_lost"} <= {each.kind for each in self.scenario.faults}
        check_copied(self.engine.node.store, may_lack, history.copies_repeat, may_repeat)


def _inject(injection: Injection, fault: object) -> Callable[[], None]:
    return lambda: injection.begin(fault)  # type: ignore[arg-type]


def simulate(scenario: Scenario, keep_lines: bool = False) -> Outcome:
    """Run a scenario to its end."""
    simulation = Simulation(scenario, keep_lines)
    return simulation.outcome(simulation.run())
