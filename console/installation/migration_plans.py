"""Plans of moves between Kafka and the engine, read from the configuration store alone: no client of Kafka is needed."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from common.admin.administrator import Administrator
from common.config.errors import InvalidDefinition
from common.kafka.base import ClusterAdmin
from migration.deployment import Deployment, EngineSide
from migration.describe import waits_for
from migration.entries import KIND, PLANS_MAX, PlanEntry, PlanStore
from migration.errors import PlanRefused
from migration.facts import Facts
from migration.plan import DOUBLE_READ
from migration.recipes.course import COMMANDS, PlanStep
from migration.reconcile.plan_check import DIFFERENCES
from migration.reconcile.plan_check import KIND as CHECK_KIND
from migration.run import rules_of
from migration.states import Refuse, begin
from migration.sub_steps.registry import SUB_STEPS

RESUME = "resume"
FACTS_TOPICS_MAX = 200  # four reads of the store for each
COMPARED_AFTER_CUT = (PlanStep.CUT, PlanStep.SOAKING)


class Gate(NamedTuple):
    """A bound of a plan. `is_met`: None: the configuration alone does not tell."""

    what: str
    bound: str
    now: str
    is_met: bool | None


def plans(admin: Administrator) -> tuple[list[PlanEntry], list[str]]:
    """All plans by name, and sentences about those that this version cannot read. Raises StoreUnavailable."""
    found, faults = [], []
    for name, entry in admin.store.entries(KIND, limit=PLANS_MAX):
        try:
            found.append(PlanEntry.from_value(name, entry.value, entry.version))
        except (PlanRefused, InvalidDefinition) as error:
            faults.append(f"plan {name}: this version cannot read it: {error}")
    return found, faults


def plan_of(admin: Administrator, name: str) -> PlanEntry:
    """Raises EntryNotFound, PlanRefused, StoreUnavailable."""
    return PlanStore(admin.store, admin.clock, admin.who).read(name)


def facts_of(admin: Administrator, entry: PlanEntry) -> Facts | None:
    """The plan's facts without positions; None: it has too many topics for a page."""
    if len(entry.plan.topics) > FACTS_TOPICS_MAX:
        return None
    return Deployment(admin, entry.plan, _no_kafka, _NO_ENGINE).facts(with_positions=False)


def _no_kafka() -> ClusterAdmin:
    raise AssertionError("a page asked Kafka for positions")


_NO_ENGINE: EngineSide = None  # type: ignore[assignment]
"""Facts without positions ask no engine."""


def allowed(entry: PlanEntry, facts: Facts | None) -> list[str]:
    """The commands that the plan's runbook allows now, by the rule that `penstock migrate` begins them by."""
    if facts is None:
        return [RESUME] if entry.state.course else []
    found = [RESUME] if entry.state.course else []
    for command in COMMANDS:
        is_at_work = entry.state.course == command
        if not is_at_work and not isinstance(begin(entry.state, command, facts), Refuse):
            found.append(command)
    if entry.state.step in COMPARED_AFTER_CUT and not entry.state.course and entry.plan.recipe != DOUBLE_READ:
        found.append("verify")
    return found


def waiting_for(admin: Administrator, entry: PlanEntry) -> str:
    """Conditions that the plan waits for, as far as the configuration tells.

    Whether a process is at work is not asked: a claim, which would tell, could keep a command from beginning.
    """
    state = entry.state
    if state.course and SUB_STEPS[state.sub_step].asks_positions:
        return f"{state.sub_step} of {state.course}: its numbers are positions in Kafka and the engine"
    facts = facts_of(admin, entry) if state.course else Facts({})
    if facts is None:
        return f"{state.sub_step} of {state.course}"
    return waits_for(state, facts, rules_of(entry.plan), is_at_work=True)


def comparison(admin: Administrator, name: str) -> dict[str, Any] | None:
    """The last comparison of a plan's topics, as `penstock migrate verify` keeps it; None: there was none."""
    found = admin.store.get(CHECK_KIND, name)
    return None if found is None else dict(found.value)


def differing(check: Mapping[str, Any]) -> int:
    """The ids that differed in a comparison."""
    return sum(sum(topic[name] for name in DIFFERENCES) for topic in check["topics"])


def gates(entry: PlanEntry, facts: Facts, check: Mapping[str, Any] | None) -> list[Gate]:
    """The plan's gates with their numbers."""
    limits = entry.plan.limits
    found = [
        Gate("records that the copies lack", f"at most {entry.plan.gates.lag_messages:,}", "see positions", None),
        Gate(
            "failed sends of a topic in 5 minutes",
            f"at most {100 * entry.plan.gates.error_rate:g} %",
            "see `migrate status`",
            None,
        ),
        Gate("processes that lack the present configuration", "none", _counted(facts.late), not facts.late),
        Gate("proxies with sends of unknown outcome", "none", _counted(facts.unsent), not facts.unsent),
    ]
    if check is not None:
        differ = differing(check)
        found.append(Gate("ids that differed in the last comparison", "none", f"{differ:,}", differ == 0))
    if facts.soaked_ms:
        hours = facts.soaked_ms / 3_600_000
        found.append(Gate("hours since the cut", f"{limits.soak_hours:,}", f"{hours:,.1f}", hours >= limits.soak_hours))
    if facts.unjournaled:
        found.append(Gate("proxies without a repair journal", "none", _counted(facts.unjournaled), False))
    if facts.waiting or facts.doubts:
        waiting = sum(each.messages for each in facts.waiting)
        found.append(Gate("messages that one side lacks", "none", f"{waiting:,}", waiting == 0))
        found.append(Gate("ranges that are to be compared", "none", _counted(facts.doubts), not facts.doubts))
    return found


def _counted(names: tuple[str, ...]) -> str:
    return f"{len(names):,}: {', '.join(names[:3])}{' …' if len(names) > 3 else ''}" if names else "0"
