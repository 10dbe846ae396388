"""A sub-step: its decision, its words for a dry run, and what it needs."""

from collections.abc import Callable
from typing import NamedTuple

from migration.facts import IN_KAFKA, Facts, Rules, TopicFacts
from migration.states import Answer, Do, PlanState

SHOWN_MAX = 5

Decider = Callable[[PlanState, Facts, Rules], Answer]


class SubStep(NamedTuple):
    """
    Attributes:
        decide: answers what is missing.
        does: a sentence with the plan's numbers in braces, see describe.rows.
        takes: how long it takes.
        is_guarded: whether it is for fenced topics only: without the fence the course is given up.
        asks_positions: whether its facts need those of Kafka and the engine.
    """

    decide: Decider
    does: str
    takes: str
    is_guarded: bool = False
    asks_positions: bool = False


def missing(work: str, is_there: Callable[[TopicFacts], bool]) -> Decider:
    """The decision to do the work for the topics for which it is not done."""

    def decide(state: PlanState, facts: Facts, rules: Rules) -> Answer:
        wanted = tuple(name for name, each in facts.topics.items() if not is_there(each))
        return Do(work, wanted) if wanted else None

    return decide


def leaving(state: PlanState, facts: Facts) -> dict[str, TopicFacts]:
    """The topics that the present course has still to switch."""
    if state.is_leaving_engine:
        return {name: each for name, each in facts.topics.items() if each.is_moved}
    return {name: each for name, each in facts.topics.items() if each.home == IN_KAFKA}


def left_ends(state: PlanState, topic: TopicFacts) -> tuple[int, ...]:
    """End offsets of the side that the topic leaves."""
    return topic.engine_ends if state.is_leaving_engine else topic.kafka_ends


def shown(names: "list[str] | tuple[str, ...]") -> str:
    """The first few of the names."""
    more = f" and {len(names) - SHOWN_MAX:,} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more
