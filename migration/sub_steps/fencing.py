"""Sub-steps of a fence and of the switch behind it."""

from collections.abc import Mapping
from dataclasses import replace

from migration.facts import Facts, Rules
from migration.recipes.course import Aim
from migration.states import Answer, Do, PlanState, Refuse, Wait, Write, after
from migration.sub_steps.configuring import applied
from migration.sub_steps.kafka_topics import standstill
from migration.sub_steps.sub_step import FENCED, SubStep, leaving, left_ends, shown

APPLIED_MS_MAX = 5_000
"""After it, a proxy that has not applied a fence is taken for cut off: the fence is lifted."""
QUIET_MS_MIN = 500


def _fence(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    wanted = tuple(name for name, each in leaving(state, facts).items() if each.fence != state.fence_id)
    return Do("fence", wanted) if wanted else None


def _fenced_everywhere(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if not facts.late:
        return None
    if facts.waited_ms > APPLIED_MS_MAX:
        return Refuse(f"the fence was not applied within {APPLIED_MS_MAX // 1000} s by {shown(facts.late)}")
    return Wait(f"the fence is not applied yet by {shown(facts.late)}")


def _sent(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if facts.unsent:
        return Wait(f"sends of before the fence have no outcome yet at {shown(facts.unsent)}")
    ends = {name: left_ends(state, each) for name, each in leaving(state, facts).items()}
    if unknown := [name for name, each in ends.items() if not each]:
        return Wait(f"the end offsets of {shown(unknown)} are not known")
    return Write(replace(after(state), ends=ends))


def growth(state: PlanState, facts: Facts, rules: Rules) -> str:
    """Why the ends behind the fence do not hold, such as a writer that bypasses the proxies; empty: they do."""
    topics = leaving(state, facts)
    if state.aim is not Aim.TO_KAFKA and isinstance(stands := standstill(topics, facts, rules), Refuse | Wait):
        return stands.sentence
    side = "queue" if state.aim is Aim.TO_KAFKA else "partition"
    for name, each in topics.items():
        if name not in state.ends:
            return f"the ends of {name} behind the fence are not known"
        for number, (end, before) in enumerate(zip(left_ends(state, each), state.ends[name], strict=False)):
            if end < before:
                return f"{name} {side} {number} ends at {end:,}, and behind the fence at {before:,}: records were lost"
            if end > before:
                return (
                    f"{name} {side} {number} grew by {end - before:,} records behind the fence: "
                    "a writer bypasses the proxies: move it to the proxies first"
                )
    return ""


def _quiet(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if grown := growth(state, facts, rules):
        return Refuse(grown)
    return Wait(f"the ends have to be still for {QUIET_MS_MIN} ms") if facts.quiet_ms < QUIET_MS_MIN else None


def _switch(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    wanted = tuple(leaving(state, facts))
    return Do("switch", wanted) if wanted else None


SUB_STEPS: Mapping[str, SubStep] = {
    "fence": SubStep(_fence, "fences {topics} topics: senders get FENCED, or BUFFERED, for {fence} s at most", "at once"),
    "fenced_everywhere": SubStep(
        _fenced_everywhere, "waits until every process has applied the fence", f"{APPLIED_MS_MAX // 1000} s",
        is_guarded=True,
    ),
    "sent": SubStep(
        _sent, "waits until sends of before the fence have their outcomes", FENCED, is_guarded=True,
        asks_positions=True,
    ),
    "quiet": SubStep(
        _quiet, "checks that no record comes behind the fence", f"{QUIET_MS_MIN} ms", is_guarded=True, asks_positions=True
    ),
    "switch": SubStep(
        _switch, "changes the home, records the place and removes the fence", "at once", is_guarded=True
    ),
    "followed": SubStep(applied, "waits until every process has applied the new home", "seconds"),
}  # fmt: skip
