"""Plans in the configuration store: kind `migration`, one entry per plan, and `migration_topic`, one per planned topic.

A plan's entry has its text as it was read, its state, the operator at work and the latest history. The ends of the state
are in the entries of its topics, so no number of topics and queues makes the plan's entry too large: that would show behind
the fence. They are written before the state, which has their digest: ends that are not those of the state are none. What is
left of the entry's room has the history.
"""

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from common.clock import Clock
from common.config.buckets import VALUE_BYTES_MAX
from common.config.definitions import TopicDefinition
from common.config.ended_fences import topic_in
from common.config.errors import EntryNotFound, VersionConflict
from common.config.store import Change, ConfigStore
from common.quoting import quoted, thing
from common.utc import utc
from migration.errors import PlanBusy, PlanRefused
from migration.fit import was_cut
from migration.plan import DIGEST_CHARS, MigrationPlan, parse_plan
from migration.recipes.course import ENDED, PlanStep
from migration.states import PlanState

KIND, TOPIC_KIND = "migration", "migration_topic"
HISTORY_MAX = 100
REASON_CHARS_MAX = 1_500
"""Of a reason, and of a line of history: with the text of a plan it fits into an entry."""
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
        kept: digest of the state's ends in the entries of the topics; another one than theirs: they are to be written.
    """

    plan: MigrationPlan
    state: PlanState
    since_ms: int
    operator: str = ""
    operator_ms: int = 0
    history: tuple[Happening, ...] = field(default=())
    version: int = 0
    kept: str = ""

    def to_value(self) -> dict[str, Any]:
        """With as much of the latest history as the store takes."""
        value = {
            "text": self.plan.text, "digest": self.plan.digest, "state": self.state.to_value(),
            "since_ms": self.since_ms, "operator": self.operator, "operator_ms": self.operator_ms,
            "ends": digest_of(self.state.ends), "history": [],
        }  # fmt: skip
        room, kept = VALUE_BYTES_MAX - len(json.dumps(value)), []
        for each in reversed(self.history[-HISTORY_MAX:]):
            row = [each.at_ms, each.who, each.what]
            room -= len(json.dumps(row)) + 1
            if room < 0:
                break
            kept.append(row)
        return {**value, "history": kept[::-1]}

    @classmethod
    def from_value(cls, name: str, value: dict[str, Any], version: int) -> "PlanEntry":
        """Raises PlanRefused: it is damaged or of another version."""
        try:
            plan = parse_plan(value["text"], thing("plan", name), is_stored=True)
            state = PlanState.from_value(name, value["state"], plan.recipe)
            history = tuple(Happening(*each) for each in value["history"])
            rest = (value["since_ms"], value["operator"], value["operator_ms"])
        except (KeyError, TypeError, ValueError) as error:
            raise PlanRefused(f"plan {quoted(name)}: this version cannot read its state: {error}") from error
        if plan.digest != value["digest"] or plan.name != name:
            raise PlanRefused(f"plan {quoted(name)}: its text does not agree with its digest {value['digest']}")
        return cls(plan, state, *rest, history=history, version=version)


def digest_of(ends: Mapping[str, tuple[int, ...]]) -> str:
    """Names the ends of a state; empty: it has none."""
    return sha256(json.dumps(ends, sort_keys=True).encode()).hexdigest()[:DIGEST_CHARS] if ends else ""


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
        entry = PlanEntry.from_value(name, found.value, found.version)
        digest = found.value.get("ends", "")
        if not digest:
            return entry
        kept = {topic: self._store.get(TOPIC_KIND, topic) for topic in entry.plan.topic_names}
        fence_id = entry.state.fence_id
        ends = {
            topic: tuple(each.value["ends"])
            for topic, each in kept.items()
            if each is not None and each.value.get("fence") == fence_id
        }
        return replace(entry, state=replace(entry.state, ends=ends if digest_of(ends) == digest else {}), kept=digest)

    def _put(self, entry: PlanEntry) -> PlanEntry:
        """Write the entry, and before it those of its topics, where the ends of its state are new.

        Raises VersionConflict: nothing of the entry is written.
        """
        if (digest := digest_of(entry.state.ends)) != entry.kept:
            self._keep_ends(entry.state)
        version = self._store.put(KIND, entry.plan.name, entry.to_value(), entry.version)
        return replace(entry, version=version, kept=digest)

    def check(self, entry: PlanEntry) -> None:
        """Raises VersionConflict: the store has another entry of the plan than this one, or none."""
        found = self._store.get(KIND, entry.plan.name)
        if found is None or found.version != entry.version:
            raise VersionConflict(KIND, entry.plan.name, entry.version, found.version if found else 0)

    def _keep_ends(self, state: PlanState) -> None:
        found = {name: self._store.get(TOPIC_KIND, name) for name in state.ends}
        self._store.put_many(TOPIC_KIND, [
            Change(name, {"plan": state.plan, "fence": state.fence_id, "ends": [*ends]}, each.version if each else 0)
            for name, ends in state.ends.items() if (each := found[name]) is None or each.value.get("plan") == state.plan
        ])  # fmt: skip

    def all(self) -> list[PlanEntry]:
        """Every plan by name. Raises PlanRefused."""
        found = self._store.entries(KIND, limit=PLANS_MAX)
        return [PlanEntry.from_value(name, each.value, each.version) for name, each in found]

    def add(self, plan: MigrationPlan) -> PlanEntry:
        """Store a new plan, or one in place of a plan that has not begun or has ended. Raises PlanRefused.

        One that was lost with the configuration goes on at its cut, see `was_cut`.
        """
        found = self._store.get(KIND, plan.name)
        state = PlanState(plan.name, recipe=plan.recipe)
        history: tuple[Happening, ...] = ()
        what = f"plan {plan.digest} stored"
        if found is None and was_cut(plan, self._topics(plan)):
            for name in plan.topic_names:
                set_mark(self._store, name, plan.name)
            state, what = replace(state, step=PlanStep.CUT), f"{what} again: its topics were moved"
        if found is not None:
            old = PlanEntry.from_value(plan.name, found.value, found.version)
            if old.state.step not in ("planned", *ENDED) or old.state.course:
                raise PlanRefused(
                    f"plan {quoted(plan.name)}: it is {old.state.step}: use another name, or end it first"
                )
            state, history = replace(state, attempt=old.state.attempt), old.history
        entry = PlanEntry(plan, state, 0, history=history, version=found.version if found else 0)
        return self.write(entry, state, what)

    def _topics(self, plan: MigrationPlan) -> dict[str, TopicDefinition]:
        found = {name: topic_in(self._store, name) for name in plan.topic_names}
        return {name: each for name, each in found.items() if each is not None}

    def write(self, entry: PlanEntry, state: PlanState, what: str = "") -> PlanEntry:
        """Write a state in place of the one in `entry`, and what it means as a line of history.

        Raises:
            VersionConflict: another process has written meanwhile; nothing is written.
        """
        state, what = replace(state, reason=state.reason[:REASON_CHARS_MAX]), what[:REASON_CHARS_MAX]
        now_ms = self._clock.now_ms()
        history = (*entry.history, Happening(now_ms, self.who, what)) if what else entry.history
        return self._put(replace(entry, state=state, since_ms=now_ms, history=history[-HISTORY_MAX:]))

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
        return self._put(replace(entry, operator=operator, operator_ms=self._clock.now_ms()))


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
