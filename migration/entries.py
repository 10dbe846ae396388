"""Plans in the configuration store: kind `migration`, one entry per plan, and `migration_topic`, one per planned topic.

An entry has the plan's text as it was read, its state, the operator at work and the latest history.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from common.clock import Clock
from common.config.errors import EntryNotFound, VersionConflict
from common.config.store import ConfigStore
from common.quoting import quoted, thing
from common.utc import utc
from migration.errors import PlanBusy, PlanRefused
from migration.plan import MigrationPlan, parse_plan
from migration.recipes.course import ENDED
from migration.states import PlanState

KIND, TOPIC_KIND = "migration", "migration_topic"
HISTORY_MAX = 100
PLANS_MAX = 10_000


@dataclass(frozen=True)
class Happening:
    """One line of a plan's history."""

    at_ms: int
    who: str
    what: str


@dataclass(frozen=True)
class PlanEntry:
    """
    Attributes:
        since_ms: when the state was written.
        operator: who is or was at work last, as "name on host, pid N".
        operator_ms: since when.
        version: of the entry, for the next write; 0: it is not written yet.
    """

    plan: MigrationPlan
    state: PlanState
    since_ms: int
    operator: str = ""
    operator_ms: int = 0
    history: tuple[Happening, ...] = field(default=())
    version: int = 0

    def to_value(self) -> dict[str, Any]:
        return {
            "text": self.plan.text, "digest": self.plan.digest, "state": self.state.to_value(),
            "since_ms": self.since_ms, "operator": self.operator, "operator_ms": self.operator_ms,
            "history": [[each.at_ms, each.who, each.what] for each in self.history[-HISTORY_MAX:]],
        }  # fmt: skip

    @classmethod
    def from_value(cls, name: str, value: dict[str, Any], version: int) -> "PlanEntry":
        """Raises PlanRefused: it is damaged or of another version."""
        try:
            plan = parse_plan(value["text"], thing("plan", name))
            state = PlanState.from_value(name, value["state"], plan.recipe)
            history = tuple(Happening(*each) for each in value["history"])
            rest = (value["since_ms"], value["operator"], value["operator_ms"])
        except (KeyError, TypeError, ValueError) as error:
            raise PlanRefused(f"plan {quoted(name)}: this version cannot read its state: {error}") from error
        if plan.digest != value["digest"] or plan.name != name:
            raise PlanRefused(f"plan {quoted(name)}: its text does not agree with its digest {value['digest']}")
        return cls(plan, state, *rest, history=history, version=version)


class PlanStore:
    """Reads and writes plans.

    Args:
        who: the operator, as in the audit journal.
    """

    def __init__(self, store: ConfigStore, clock: Clock, who: str) -> None:
        self._store, self._clock, self.who = store, clock, who

    def read(self, name: str) -> PlanEntry:
        """Raises EntryNotFound, PlanRefused."""
        found = self._store.get(KIND, name)
        if found is None:
            raise EntryNotFound(f"plan {quoted(name)}: not found: see `penstock migrate status`")
        return PlanEntry.from_value(name, found.value, found.version)

    def all(self) -> list[PlanEntry]:
        """Every plan by name. Raises PlanRefused."""
        found = self._store.entries(KIND, limit=PLANS_MAX)
        return [PlanEntry.from_value(name, each.value, each.version) for name, each in found]

    def add(self, plan: MigrationPlan) -> PlanEntry:
        """Store a new plan, or one in place of a plan that has not begun or has ended. Raises PlanRefused."""
        found = self._store.get(KIND, plan.name)
        state = PlanState(plan.name, recipe=plan.recipe)
        history: tuple[Happening, ...] = ()
        if found is not None:
            old = PlanEntry.from_value(plan.name, found.value, found.version)
            if old.state.step not in ("planned", *ENDED) or old.state.course:
                raise PlanRefused(
                    f"plan {quoted(plan.name)}: it is {old.state.step}: use another name, or end it first"
                )
            state, history = replace(state, attempt=old.state.attempt), old.history
        entry = PlanEntry(plan, state, 0, history=history, version=found.version if found else 0)
        return self.write(entry, state, f"plan {plan.digest} stored")

    def write(self, entry: PlanEntry, state: PlanState, what: str = "") -> PlanEntry:
        """Write a state in place of the one in `entry`, and what it means as a line of history.

        Raises:
            VersionConflict: another process has written meanwhile; nothing is written.
        """
        now_ms = self._clock.now_ms()
        history = (*entry.history, Happening(now_ms, self.who, what)) if what else entry.history
        made = replace(entry, state=state, since_ms=now_ms, history=history[-HISTORY_MAX:])
        return replace(made, version=self._store.put(KIND, entry.plan.name, made.to_value(), entry.version))

    @contextmanager
    def at_work(self, name: str) -> Iterator[PlanEntry]:
        """The plan, with this process as its operator until the end of the context, or of the process.

        Raises:
            PlanBusy: another process is at work. EntryNotFound.
        """
        entry = self.read(name)
        claim = f"migration/{name}"
        if not self._store.claim(claim):
            who = entry.operator or "another process"
            raise PlanBusy(f"plan {quoted(name)}: {who} is at work since {utc(entry.operator_ms)}")
        try:
            operator = f"{self.who.removeprefix('cli:')} on {socket.gethostname()}, pid {os.getpid()}"
            yield self._named(name, operator)
        finally:
            self._store.release(claim)

    def _named(self, name: str, operator: str) -> PlanEntry:
        entry = self.read(name)
        made = replace(entry, operator=operator, operator_ms=self._clock.now_ms())
        return replace(made, version=self._store.put(KIND, name, made.to_value(), entry.version))


def marks(store: ConfigStore, names: tuple[str, ...]) -> dict[str, str]:
    """The plan of each topic that is in one."""
    found = {name: store.get(TOPIC_KIND, name) for name in names}
    return {name: str(each.value.get("plan", "")) for name, each in found.items() if each is not None}


def set_mark(store: ConfigStore, name: str, plan: str) -> None:
    """Mark a topic as this plan's. A mark of another plan stays."""
    try:
        store.put(TOPIC_KIND, name, {"plan": plan}, 0)
    except VersionConflict:
        return  # the facts tell whose it is


def remove_mark(store: ConfigStore, name: str, plan: str) -> None:
    """Remove this plan's mark."""
    found = store.get(TOPIC_KIND, name)
    if found is not None and found.value.get("plan") == plan:
        store.delete(TOPIC_KIND, name, found.version)
