"""The sub-steps of courses in words: for dry runs, and for the operator who reads a status."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from migration.facts import Facts, Rules
from migration.plan import MigrationPlan
from migration.states import COURSES, Do, PlanState, PlanStep, Wait
from migration.sub_steps import APPLIED_MS_MAX, QUIET_MS_MIN, decide


class SubStepText(NamedTuple):
    """Attributes: does: a sentence with the plan's numbers; takes: how long."""

    does: str
    takes: str


TEXTS: Mapping[str, SubStepText] = {
    "mark": SubStepText("marks {topics} topics as this plan's", "at once"),
    "entries": SubStepText("creates missing topics, with kafka:{cluster} as their home", "at once"),
    "copy_in": SubStepText("asks the Kafka bridges to copy {topics} topics into the engine", "at once"),
    "applied": SubStepText("waits until every process has applied the configuration", "seconds"),
    "caught_up": SubStepText("waits until the copies lack at most {lag:,} records", "as long as the copy takes"),
    "gates": SubStepText("checks the copies: at most {lag:,} records behind, one source per queue", "at once"),
    "fence": SubStepText("fences {topics} topics: senders get FENCED, or BUFFERED, for {fence} s at most", "at once"),
    "fenced_everywhere": SubStepText("waits until every process has applied the fence", f"{APPLIED_MS_MAX // 1000} s"),
    "sent": SubStepText("waits until sends of before the fence have their outcomes", "up to 30 s"),
    "quiet": SubStepText("checks that no record comes behind the fence", f"{QUIET_MS_MIN} ms"),
    "drained": SubStepText("waits until the other side has every record", "seconds"),
    "switch": SubStepText("changes the home, records the place and removes the fence", "at once"),
    "followed": SubStepText("waits until every process has applied the new home", "seconds"),
    "copy_out": SubStepText("asks the Kafka bridges to copy the engine's messages back to Kafka", "at once"),
    "moved": SubStepText("checks that a topic has moved", "at once"),
    "not_moved": SubStepText("checks that no topic has moved", "at once"),
    "soaked": SubStepText("checks that {soak} hours have passed, and that no record came to Kafka", "at once"),
    "no_copy_out": SubStepText("ends the copies back to Kafka", "at once"),
    "no_copy_in": SubStepText("ends the copies into the engine", "at once"),
    "lift": SubStepText("removes this plan's fences", "at once"),
    "unmark": SubStepText("frees the topics for other plans", "at once"),
}

_NEXT = {
    PlanStep.PLANNED: "start", PlanStep.COPYING: "verify", PlanStep.VERIFIED: "cut", PlanStep.FENCED: "cut",
    PlanStep.CUT: "soak", PlanStep.SOAKING: "retire",
}  # fmt: skip


def rows(plan: MigrationPlan, command: str) -> list[dict[str, Any]]:
    """What each sub-step of a command will do, how long it takes, and how to go back from it."""
    course = COURSES[command]
    switched = len(course.sub_steps)
    if "switch" in course.sub_steps:
        switched = course.sub_steps.index("switch")
    numbers = {
        "topics": len(plan.topics), "cluster": plan.cluster, "lag": plan.gates.lag_messages,
        "fence": plan.limits.fence_s, "soak": plan.limits.soak_hours,
    }  # fmt: skip
    return [
        {
            "sub_step": name,
            "does": TEXTS[name].does.format(**numbers),
            "takes": TEXTS[name].takes,
            "undo": course.undo if at >= switched or "switch" not in course.sub_steps else "lifts the fence by itself",
        }
        for at, name in enumerate(course.sub_steps)
    ]


def waits_for(state: PlanState, facts: Facts, rules: Rules, is_at_work: bool) -> str:
    """What the plan waits for, as a sentence with numbers."""
    idle = "" if is_at_work else " (no process is at work: use resume)"
    if not state.course:
        following = _NEXT.get(state.step)
        return f"an operator: {following} is next" if following else "nothing: it has ended"
    decision = decide(state, facts, rules)
    if isinstance(decision, Wait):
        return decision.sentence + idle
    if isinstance(decision, Do):
        return f"{decision.work} of {len(decision.topics):,} topics{idle}"
    return f"the end of {state.sub_step}{idle}"
