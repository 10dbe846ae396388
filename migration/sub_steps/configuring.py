"""Sub-steps that make the configuration so, and checks of where topics are."""

from collections.abc import Mapping

from migration.facts import IN_ENGINE, MISSING, Facts, Rules
from migration.states import Answer, Do, PlanState, Refuse, Wait
from migration.sub_steps.kafka_topics import PASS_MS_MAX
from migration.sub_steps.sub_step import SubStep, missing, shown

SOAK, LATE = "soak", "late"
"""Gates that an operator may accept: the time of the soak, records after the cut."""
COPIED_MS_MAX = 10_000
"""In it, a bridge that runs copies a record that has come."""


def _mark(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    taken = [f"{name} (plan {each.mark})" for name, each in facts.topics.items() if each.mark not in ("", state.plan)]
    if taken:
        return Refuse(f"{shown(taken)}: a topic is in one plan at most: end the other plan first")
    free = tuple(name for name, each in facts.topics.items() if not each.mark)
    return Do("mark", free) if free else None


def _entries(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if moved := [name for name, each in facts.topics.items() if each.home == IN_ENGINE]:
        return Refuse(f"{shown(moved)}: the home is the engine already, or another cluster")
    missing = tuple(name for name, each in facts.topics.items() if each.home == MISSING)
    return Do("entries", missing) if missing else None


def applied(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    return Wait(f"not applied yet by {shown(facts.late)}") if facts.late else None


def _moved(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if any(each.is_moved for each in facts.topics.values()):
        return None
    return Refuse("no topic has its home in the engine: there is nothing to roll back")


def _not_moved(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if moved := [name for name, each in facts.topics.items() if each.is_moved]:
        return Refuse(f"{shown(moved)} moved to the engine: use rollback first")
    return None


def _soaked(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if facts.soaked_ms < rules.soak_ms and SOAK not in rules.accepted:
        left_h = (rules.soak_ms - facts.soaked_ms) / 3_600_000
        return Refuse(f"the plan's time of soaking ends in {left_h:,.1f} hours: wait, or use --accept {SOAK}")
    late = [f"{name} queue {queue}" for name, each in facts.topics.items() for queue in each.late_queues]
    if late and LATE not in rules.accepted:
        return Refuse(
            f"records came to Kafka after the cut, and were copied into {shown(late)}: a writer bypasses the proxies: "
            f"find it, or use --accept {LATE}"
        )
    return None if LATE in rules.accepted else _uncopied(facts)


def _uncopied(facts: Facts) -> Answer:
    """Whether Kafka has records after the cut that no bridge has copied: asked of Kafka itself, as none may be running."""
    topics = {
        n: each for n, each in facts.topics.items() if each.home == IN_ENGINE and each.has_copy_in and not each.foreign
    }
    for name, each in topics.items():
        if each.losses:
            sentence = f"{'; '.join(each.losses.values())}; or use --accept {LATE}"
            return Refuse(sentence) if facts.waited_ms >= PASS_MS_MAX else Wait(sentence)
        if each.uncopied:
            partition, offset = each.uncopied[0]
            sentence = (
                f"{name} partition {partition}: the record at offset {offset:,} came to Kafka after the cut and is not copied: "
                f"a writer bypasses the proxies, and is a Kafka bridge running? Use --accept {LATE} to go on without it"
            )
            return Refuse(sentence) if facts.waited_ms >= COPIED_MS_MAX else Wait(sentence)
        if each.behind_in is None:
            return Refuse(f"the position of the copy of {name} is not known: use --accept {LATE} to go on without it")
    behind = sum(each.behind_in or 0 for each in topics.values())
    return Wait(f"{behind:,} offsets in Kafka are to be looked through for records after the cut") if behind else None


def _unmark(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    own = tuple(name for name, each in facts.topics.items() if each.mark == state.plan)
    return Do("unmark", own) if own else None


SUB_STEPS: Mapping[str, SubStep] = {
    "mark": SubStep(_mark, "marks {topics} topics as this plan's", "at once"),
    "entries": SubStep(_entries, "creates missing topics, with kafka:{cluster} as their home", "at once"),
    "copy_in": SubStep(
        missing("copy_in", lambda each: each.has_copy_in),
        "asks the Kafka bridges to copy {topics} topics into the engine", "at once",
    ),
    "applied": SubStep(applied, "waits until every process has applied the configuration", "seconds"),
    "copy_out": SubStep(
        missing("copy_out", lambda each: each.has_copy_out or not each.is_moved),
        "asks the Kafka bridges to copy the engine's messages back to Kafka", "at once",
    ),
    "moved": SubStep(_moved, "checks that a topic has moved", "at once"),
    "not_moved": SubStep(_not_moved, "checks that no topic has moved", "at once"),
    "soaked": SubStep(
        _soaked, "checks that {soak} hours have passed, and that no record came to Kafka", "seconds", asks_positions=True
    ),
    "no_copy_out": SubStep(
        missing("no_copy_out", lambda each: not each.has_copy_out), "ends the copies back to Kafka", "at once"
    ),
    "no_copy_in": SubStep(
        missing("no_copy_in", lambda each: not each.has_copy_in), "ends the copies into the engine", "at once"
    ),
    "lift": SubStep(missing("lift", lambda each: not each.fence), "removes this plan's fences", "at once"),
    "unmark": SubStep(_unmark, "frees the topics for other plans", "at once"),
}  # fmt: skip
