"""Steps of a plan, and courses between them: rows of sub-steps. Shared by all recipes."""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import NamedTuple


class PlanStep(StrEnum):
    PLANNED = "planned"
    COPYING = "copying"
    VERIFIED = "verified"
    FENCED = "fenced"
    CUT = "cut"
    SOAKING = "soaking"
    RETIRED = "retired"
    ABORTED = "aborted"


ENDED = (PlanStep.RETIRED, PlanStep.ABORTED)


class Aim(Enum):
    """What a course does to its topics behind the fence.

    TO_ENGINE, TO_KAFKA: changes their home. PAIR: gives them a secondary. SWAP_TO_ENGINE, SWAP_TO_KAFKA: changes home
    and secondary. UNPAIR: takes the secondary away.
    """

    TO_ENGINE = 0
    TO_KAFKA = 1
    PAIR = 2
    SWAP_TO_ENGINE = 3
    SWAP_TO_KAFKA = 4
    UNPAIR = 5


class Course(NamedTuple):
    """
    Attributes:
        sub_steps: in order. to: the step after the last one. undo: how to go back from there.
        is_compared: the command compares the sides then, and the step is `to` only when they are equal; see
            `migration.states.compared`.
    """

    begins: tuple[PlanStep, ...]
    sub_steps: tuple[str, ...]
    to: PlanStep
    undo: str
    aim: Aim = Aim.TO_ENGINE
    is_compared: bool = False


Courses = Mapping[str, Course]
"""Of one recipe, by command; and UNFENCE."""

CUTTABLE = (PlanStep.VERIFIED, PlanStep.FENCED)
UNFENCE = "unfence"
"""The course by which a command that cannot go on gives up: it lifts the fences. Its reason is in the state."""
UNFENCING = Course(tuple(PlanStep), ("lift",), PlanStep.VERIFIED, "fence again")

COMMANDS = ("start", "verify", "fence", "cut", "soak", "rollback", "retire", "abort")
"""Every recipe has a course for each of them."""
