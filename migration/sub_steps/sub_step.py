"""A sub-step: its decision, its words for a dry run, and what it needs."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from migration.facts import IN_KAFKA, Facts, Rules, TopicFacts
from migration.recipes.course import Aim
from migration.states import Answer, Do, PlanState

SHOWN_MAX = 5
FENCED = "up to {fence} s"
"""Time of a sub-step that only the fence's time bounds."""

Decider = Callable[[PlanState, Facts, Rules], Answer]


class SubStep(NamedTuple):
    """
    Attributes:
        decide: answers what is missing.
        does: a sentence with the plan's numbers in braces, see describe.rows.
        takes: how long it takes, with the same numbers.
        is_guarded: whether it is for fenced topics only: without the fence, and after the fence's time, the course is given up.
        asks_positions: whether its facts need those of Kafka and the engine.
        asks_claims: whether its facts need what bridges copy.
        asks_leftovers: whether its facts need delayed messages and dead letters.
        asks_errors: whether its facts need the outcomes of sends.
        asks_policies: whether its facts need the topics' policies in Kafka.
        asks_tails: whether its facts need a comparison of what was copied last.
        asks_groups: whether its facts need the groups that read the topics in Kafka.
    """

    decide: Decider
    does: str
    takes: str
    is_guarded: bool = False
    asks_positions: bool = False
    asks_claims: bool = False
    asks_leftovers: bool = False
    asks_errors: bool = False
    asks_policies: bool = False
    asks_groups: bool = False
    asks_tails: bool = False


def missing(work: str, is_there: Callable[[TopicFacts], bool]) -> Decider:
    """The decision to do the work for the topics for which it is not done."""

    def decide(state: PlanState, facts: Facts, rules: Rules) -> Answer:
        wanted = tuple(name for name, each in facts.topics.items() if not is_there(each))
        return Do(work, wanted) if wanted else None

    return decide


_IS_LEFT: Mapping[Aim, Callable[[TopicFacts], bool]] = {
    Aim.TO_ENGINE: lambda each: each.home == IN_KAFKA,
    Aim.TO_KAFKA: lambda each: each.is_moved,
    Aim.PAIR: lambda each: each.home == IN_KAFKA and not each.secondary,
    Aim.SWAP_TO_ENGINE: lambda each: each.home == IN_KAFKA,
    Aim.SWAP_TO_KAFKA: lambda each: each.is_moved,
    Aim.UNPAIR: lambda each: bool(each.secondary),
}


def leaving(state: PlanState, facts: Facts) -> dict[str, TopicFacts]:
    """The topics that the present course has still to change behind its fence."""
    return {name: each for name, each in facts.topics.items() if _IS_LEFT[state.aim](each)}


def left_ends(state: PlanState, topic: TopicFacts) -> tuple[int, ...]:
    """End offsets behind the fence that only writers beside the proxies can move.

    With a secondary these are Kafka's in both directions: nothing but proxies writes to the engine.
    """
    return topic.engine_ends if state.aim is Aim.TO_KAFKA else topic.kafka_ends


def shown(names: "list[str] | tuple[str, ...]") -> str:
    """The first few of the names."""
    more = f" and {len(names) - SHOWN_MAX:,} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more
