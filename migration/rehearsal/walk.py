"""The commands of a rehearsal in their order, and the kills that are drawn for them from a seed. Pure."""

import random
from collections.abc import Sequence
from typing import NamedTuple

from migration.recipes.registry import courses_of

FIRST = ("start", "verify", "cut", "soak")
"""Nothing is killed in them: their times are those of an undisturbed move."""
AGAIN = ("rollback", "verify", "cut", "soak", "retire")
OPERATOR = "operator"
VICTIMS = (OPERATOR, "producer_proxy", "consumer_proxy", "kafka_bridge", "engine")
KILLS_MAX = len(AGAIN)


class Kill(NamedTuple):
    """Attributes: victim: OPERATOR, the process of the command; or a process of `penstock up`."""

    sub_step: str
    victim: str


class RehearsedCommand(NamedTuple):
    """Attributes: to: the step in which the plan is afterwards."""

    name: str
    to: str
    kill: Kill | None = None


def walk_of(recipe: str, seed: int, kills: int, victims: Sequence[str] = VICTIMS) -> list[RehearsedCommand]:
    """The commands, each of the chosen ones with a kill in one of its sub-steps.

    Args:
        kills: at most KILLS_MAX.
    """
    chance, courses = random.Random(seed), courses_of(recipe)
    chosen = set(chance.sample(range(len(AGAIN)), kills))
    found = [RehearsedCommand(name, str(courses[name].to)) for name in FIRST]
    for number, name in enumerate(AGAIN):
        kill = Kill(chance.choice(courses[name].sub_steps), chance.choice(victims)) if number in chosen else None
        found.append(RehearsedCommand(name, str(courses[name].to), kill))
    return found
