"""Gates on the topics in Kafka, which may be others by now than those that were planned, copied or cut."""

from collections.abc import Mapping

from migration.facts import IN_ENGINE, Facts, Rules, TopicFacts
from migration.recipes.course import Aim, PlanStep
from migration.states import Answer, PlanState, Refuse, Wait
from migration.sub_steps.sub_step import SHOWN_MAX, SubStep, leaving

SOURCE = "source"
"""Gate that an operator may accept: several sources of a queue; where the home is the engine, another topic in Kafka."""
OPEN_MS_MAX = 5_000
"""After it, a transaction that is open counts as one that hangs."""
AFTER_CUT = (PlanStep.CUT, PlanStep.SOAKING)
PASS_MS_MAX = 70_000
"""In it, a bridge moves its position over what Kafka has deleted and had nothing to copy."""


def standstill(topics: Mapping[str, TopicFacts], facts: Facts, rules: Rules) -> Answer:
    """Refuses where a copy cannot go on, or where its figures belong to another topic."""
    standing = [each for each in topics.values() if _sentences(each, rules)]
    if not standing:
        return None
    told = [sentence for each in standing for sentence in _sentences(each, rules)]
    sentence = "; ".join(told[:SHOWN_MAX]) + (f"; and {len(told) - SHOWN_MAX:,} more" if len(told) > SHOWN_MAX else "")
    # Since a rollback Kafka has copies of the engine's own messages. Retention deletes them before a bridge has passed them.
    is_passing = all(each.cut_ms and not each.foreign for each in standing)
    return Wait(sentence) if is_passing and facts.waited_ms < PASS_MS_MAX else Refuse(sentence)


def _sentences(topic: TopicFacts, rules: Rules) -> tuple[str, ...]:
    """Of a topic whose home is the engine, what was lost for the copy from Kafka is a matter of the gate `late`."""
    if topic.home != IN_ENGINE:
        return topic.losses_of_home
    if SOURCE in rules.accepted:
        return ()
    return tuple(f"{each}: use --accept {SOURCE} to go on without it" for each in topic.losses_of_home)


def open_transaction(topics: Mapping[str, TopicFacts]) -> str:
    """The sentence about a transaction that is open; empty: none is."""
    for name, each in topics.items():
        for partition, first, end in each.open_transactions:
            return (
                f"{name} partition {partition}: a transaction is open since offset {first:,}, {end - first:,} offsets before "
                "the end: nothing behind it can be copied: have its producer end it, or find and abort it by "
                f"kafka-transactions.sh find-hanging and abort --topic {name} --partition {partition} --start-offset {first}"
            )
    return ""


def _sources(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    if stands := standstill(facts.topics, facts, rules):
        return stands
    if state.aim is Aim.TO_KAFKA or "fence" not in state.course_of(state.course).sub_steps:
        return None  # Kafka's ends are not waited for: the transactions of the copy back move them
    if not (sentence := open_transaction(leaving(state, facts))):
        return None
    return Refuse(sentence) if facts.waited_ms >= OPEN_MS_MAX else Wait(sentence)


def _policies(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    found = [
        f"{name}: cleanup.policy is {each.policy}" for name, each in facts.topics.items() if "compact" in each.policy
    ]
    if not found:
        return None
    told = ", ".join(found[:SHOWN_MAX])
    if state.step in AFTER_CUT:
        return Refuse(
            f"{told}: Kafka removes records that it has a later one of: set it to delete in Kafka, and have what is missing there "
            "written by `penstock migrate verify PLAN --all --repair`"
        )
    return Refuse(
        f"{told}: the engine keeps every record, so it is another topic there: set it to delete in Kafka, or leave the topic out "
        "of the plan"
    )


SUB_STEPS: Mapping[str, SubStep] = {
    "sources": SubStep(
        _sources, "checks that the topics in Kafka are the same ones, have lost nothing, and have no open transaction",
        f"up to {OPEN_MS_MAX // 1000} s", asks_positions=True,
    ),
    "policies": SubStep(_policies, "checks that no topic in Kafka is compacted", "at once", asks_policies=True),
}  # fmt: skip
