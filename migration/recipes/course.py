"""Steps of a plan, and courses between them: rows of sub-steps. Shared by all recipes."""

from collections.abc import Mapping
from enum import StrEnum
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


class Course(NamedTuple):
    """Attributes: sub_steps: in order; to: the step after the last one; undo: how to go back from there."""

    begins: tuple[PlanStep, ...]
    sub_steps: tuple[str, ...]
    to: PlanStep
    undo: str


Courses = Mapping[str, Course]
"""Of one recipe, by command; and UNFENCE."""

CUTTABLE = (PlanStep.VERIFIED, PlanStep.FENCED)
UNFENCE = "unfence"
"""The course by which a command that cannot go on gives up: it lifts the fences. Its reason is in the state."""
UNFENCING = Course(tuple(PlanStep), ("lift",), PlanStep.VERIFIED, "fence again")

COMMANDS = ("start", "verify", "fence", "cut", "soak", "rollback", "retire", "abort")
"""Every recipe has a course for each of them."""
