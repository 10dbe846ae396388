"""The sub-steps of courses in words: for dry runs, and for the operator who reads a status."""

from typing import Any

from migration.entries import PlanEntry
from migration.facts import IN_KAFKA, Facts, Rules
from migration.plan import DOUBLE_READ, MigrationPlan
from migration.recipes.course import PlanStep
from migration.recipes.registry import courses_of
from migration.states import Do, PlanState, Wait
from migration.sub_steps.registry import SUB_STEPS, decide
from migration.sub_steps.sub_step import SHOWN_MAX

NEXT = {
    PlanStep.PLANNED: "start", PlanStep.COPYING: "verify", PlanStep.VERIFIED: "cut", PlanStep.FENCED: "cut",
    PlanStep.CUT: "soak", PlanStep.SOAKING: "retire",
}  # fmt: skip
"""The command that follows a step."""


BEFORE_CUT = (PlanStep.PLANNED, PlanStep.COPYING, PlanStep.VERIFIED, PlanStep.FENCED)
CHANGES = ("switch", "pair", "unpair")
"""Sub-steps that change what is behind a fence."""


def rows(plan: MigrationPlan, command: str) -> list[dict[str, Any]]:
    """What each sub-step of a command will do, how long it takes, and how to go back from it."""
    course = courses_of(plan.recipe)[command]
    changes = [at for at, name in enumerate(course.sub_steps) if name in CHANGES]
    switched = changes[0] if changes else len(course.sub_steps)
    numbers = {
        "topics": len(plan.topics), "cluster": plan.cluster, "lag": plan.gates.lag_messages,
        "fence": plan.limits.fence_s, "soak": plan.limits.soak_hours,
        "errors": f"{100 * plan.gates.error_rate:g} %",
    }  # fmt: skip
    compare = {
        "sub_step": "compare", "does": "compare the messages of both sides by id and hash; equal, the plan is verified",
        "takes": "seconds to minutes", "undo": "none needed",
    }  # fmt: skip
    return [
        {
            "sub_step": name,
            "does": SUB_STEPS[name].does.format(**numbers),
            "takes": SUB_STEPS[name].takes.format(**numbers),
            "undo": course.undo if at >= switched or not changes else "lifts the fence by itself",
        }
        for at, name in enumerate(course.sub_steps)
    ] + [compare] * course.is_compared


def waiting_operator(state: PlanState) -> str:
    """What a plan waits for while no course is at work."""
    following = NEXT.get(state.step)
    return f"an operator: {following} is next" if following else "nothing: it has ended"


def groups_back(plan: MigrationPlan, facts: Facts) -> str:
    """How groups that pulled here go on in Kafka; empty: the topics are not back there, or messages never were."""
    if plan.recipe == DOUBLE_READ or not any(each.home == IN_KAFKA and each.cut_ms for each in facts.topics.values()):
        return ""
    return f"those that pulled here go on in Kafka by: penstock migrate positions {plan.name} --group GROUP --to kafka"


def asks_groups(entry: PlanEntry) -> bool:
    """Whether groups that the plan does not name matter now: before the cut, each message is still in Kafka."""
    return entry.plan.recipe == DOUBLE_READ and entry.state.step in BEFORE_CUT


def groups_told(plan: MigrationPlan, facts: Facts) -> str:
    """What an operator should know of groups; empty: nothing."""
    if facts.unnamed is None:
        return groups_back(plan, facts)
    told = [each.sentence for each in facts.unnamed.groups[:SHOWN_MAX]]
    if (more := len(facts.unnamed.groups) - len(told) + facts.unnamed.unasked) > 0:
        told.append(f"{more:,} more")
    return f"not in the plan: {'; '.join(told)}" if told else "all that read the topics in Kafka are in the plan"


def waits_for(state: PlanState, facts: Facts, rules: Rules, is_at_work: bool) -> str:
    """What the plan waits for, as a sentence with numbers."""
    idle = "" if is_at_work else " (no process is at work: use resume)"
    if not state.course:
        return waiting_operator(state)
    decision = decide(state, facts, rules)
    if isinstance(decision, Wait):
        return decision.sentence + idle
    if isinstance(decision, Do):
        return f"{decision.work} of {len(decision.topics):,} topics{idle}"
    return f"the end of {state.sub_step}{idle}"
