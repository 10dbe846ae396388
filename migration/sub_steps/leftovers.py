"""Gates on messages that the engine alone has: delayed ones that wait, and dead letters that were not redriven."""

from collections.abc import Callable, Mapping

from common.utc import utc
from migration.facts import Facts, Rules, TopicFacts
from migration.leftovers import LeftDeadLetters
from migration.states import Answer, PlanState, Refuse
from migration.sub_steps.sub_step import SHOWN_MAX, Decider, SubStep

DELAYED, DEAD_LETTERS = "delayed", "dead-letters"
GATES = (DELAYED, DEAD_LETTERS)
"""Gates that an operator may accept: delayed messages come in the engine only; dead letters stay there."""


def _delayed(state: PlanState, facts: Facts, rules: Rules) -> Answer:
    waiting = {name: each.delayed for name, each in facts.topics.items() if each.delayed and each.delayed.messages}
    if not waiting or DELAYED in rules.accepted:
        return None
    told = [
        f"{each.messages:,} delayed messages of {name} wait, the last one until {utc(each.last_due_ms)}"
        for name, each in [*waiting.items()][:SHOWN_MAX]
    ]
    first = next(iter(waiting))
    return Refuse(
        f"{'; '.join(told)}{_more(len(waiting))}: they would come in the engine and never in Kafka: wait for them, cancel "
        f"them (penstock timer list --topic {first}), or use --accept {DELAYED}"
    )


def _dead(which: Callable[[str, TopicFacts], tuple[LeftDeadLetters, ...]], why: str) -> Decider:
    """The decision to refuse while there are dead letters of that kind."""

    def decide(state: PlanState, facts: Facts, rules: Rules) -> Answer:
        found = [each for name, topic in facts.topics.items() for each in which(name, topic)]
        if not found or DEAD_LETTERS in rules.accepted:
            return None
        told = [f"group {each.group} has {each.messages:,} dead letters of {each.topic}" for each in found[:SHOWN_MAX]]
        first = found[0]
        return Refuse(
            f"{'; '.join(told)}{_more(len(found))}: {why}: redrive or purge them (penstock group dead-letters redrive "
            f"{first.group} --topic {first.topic}), or use --accept {DEAD_LETTERS}"
        )

    return decide


def _own(name: str, topic: TopicFacts) -> tuple[LeftDeadLetters, ...]:
    return tuple(each for each in topic.dead if each.topic == name)


def _hidden(name: str, topic: TopicFacts) -> tuple[LeftDeadLetters, ...]:
    return tuple(each for each in topic.dead if each.topic != name)


def _more(count: int) -> str:
    return f"; and {count - SHOWN_MAX:,} more" if count > SHOWN_MAX else ""


_DOES_DELAYED = "checks that no delayed message of the topics waits"

SUB_STEPS: Mapping[str, SubStep] = {
    "delayed": SubStep(_delayed, _DOES_DELAYED, "at once", asks_leftovers=True),
    # Senders may have sent more of them until the fence.
    "delayed_fenced": SubStep(
        _delayed, f"{_DOES_DELAYED}, behind the fence", "at once", is_guarded=True, asks_leftovers=True
    ),
    "dead_letters": SubStep(
        _dead(_own, "a redrive after it would lead to the engine, and never to Kafka"),
        "checks that no group has dead letters of the topics", "at once", asks_leftovers=True,
    ),
    "hidden_dead_letters": SubStep(
        _dead(_hidden, "they came from Kafka, and the hidden topic to which a redrive leads is removed"),
        "checks that no group has dead letters of what it got from Kafka", "at once", asks_leftovers=True,
    ),
}  # fmt: skip
