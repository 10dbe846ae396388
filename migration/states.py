"""The state machine of a plan, design 0035: the state, and how it moves through the courses of the plan's recipe.

    inventory → planned → copying → verified → fenced → cut → soaking → retired

A command begins a *course*: a row of sub-steps to another step. A sub-step looks at the facts and answers with a work
item, with a wait, or with nothing: then what it is for is so, and the next one begins. So a course may be left at any
moment and resumed: what is done is found done. The state is written by compare-and-set before a sub-step begins.

Pure: no sockets, files or clocks. `migration.recipes` has the courses, `migration.sub_steps` the sub-steps, and
`migration.run` performs the work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from migration.facts import Facts
from migration.plan import MIRROR
from migration.recipes.course import UNFENCE, Aim, Course, PlanStep
from migration.recipes.registry import courses_of


@dataclass(frozen=True)
class PlanState:
    """
    Attributes:
        course, sub_step: at work; empty: none is.
        attempt: of fences; never decreases, so no two fences of a plan have the same id.
        ends: of the side that is left, by topic, as they were when the sends had ended. They are stored beside the state:
            see `migration.entries`.
        reason: why the last course was given up; empty: it was not.
        quits: the course that UNFENCE ends.
        recipe: of the plan, which knows it: it is not stored with the state.
    """

    plan: str
    step: PlanStep = PlanStep.PLANNED
    course: str = ""
    sub_step: str = ""
    attempt: int = 0
    ends: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    reason: str = ""
    quits: str = ""
    recipe: str = MIRROR

    def course_of(self, command: str) -> Course:
        """The course of a command in the plan's recipe."""
        return courses_of(self.recipe)[command]

    @property
    def fence_id(self) -> str:
        return f"{self.plan}.{self.attempt}"

    @property
    def aim(self) -> Aim:
        """Of the present course."""
        return self.course_of(self.course).aim if self.course else Aim.TO_ENGINE

    @property
    def is_leaving_engine(self) -> bool:
        """Whether the present course moves topics from the engine to Kafka."""
        return self.aim in (Aim.TO_KAFKA, Aim.SWAP_TO_KAFKA)

    def to_value(self) -> dict[str, Any]:
        return {
            "step": str(self.step), "course": self.course, "sub_step": self.sub_step, "attempt": self.attempt,
            "ends": {}, "reason": self.reason, "quits": self.quits,
        }  # fmt: skip

    @classmethod
    def from_value(cls, plan: str, value: Mapping[str, Any], recipe: str = MIRROR) -> "PlanState":
        """A state that an older version has written has its ends with it. Raises KeyError, ValueError: it is of another version."""
        return cls(
            plan, PlanStep(value["step"]), value["course"], value["sub_step"], value["attempt"],
            {name: tuple(ends) for name, ends in value["ends"].items()}, value["reason"], value["quits"], recipe,
        )  # fmt: skip


class Do(NamedTuple):
    """A work item: make it so for these topics. Doing it again does nothing more."""

    work: str
    topics: tuple[str, ...]


class Write(NamedTuple):
    """Write this state, in place of the one that was decided on."""

    state: PlanState


class Wait(NamedTuple):
    """Look again later; the sentence has numbers."""

    sentence: str


class Refuse(NamedTuple):
    """The sub-step cannot succeed now: the course is given up, and its fences are lifted."""

    sentence: str


Decision = Do | Write | Wait | None
Answer = Do | Write | Wait | Refuse | None
"""Of a sub-step; None: it is done."""


def begin(state: PlanState, command: str, facts: Facts) -> PlanState | Refuse:
    """The state in which a command begins its course, or the reason why it may not.

    A command other than the one at work ends that one where the table allows it: `abort` before anything has moved,
    `rollback` after.
    """
    if state.course == command:
        return state
    course = state.course_of(command)
    has_moved = any(each.is_moved for each in facts.topics.values())
    if state.course and not (command == "abort" or (command == "rollback" and has_moved)):
        return Refuse(f"{state.course} is at work (sub-step {state.sub_step}): use resume, or abort")
    if state.step not in course.begins:
        rule = ", ".join(course.begins)
        return Refuse(f"it is {state.step}: {command} is possible when it is {rule}")
    if command == "abort" and has_moved:
        return Refuse("topics have moved to the engine: use rollback first")
    return enter(state, command)


def enter(state: PlanState, command: str) -> PlanState:
    """The state at the first sub-step of a course."""
    quits = state.course if command == UNFENCE else ""
    reason = state.reason if command == UNFENCE else ""
    return replace(state, course=command, sub_step=state.course_of(command).sub_steps[0], quits=quits, reason=reason)


def give_up(state: PlanState, sentence: str) -> PlanState:
    """The state in which the present course is left: its fences are lifted first."""
    return enter(replace(state, reason=sentence), UNFENCE)


def compared(state: PlanState, differing: int, is_current: bool = True) -> PlanState:
    """The state after the sides were compared.

    Args:
        is_current: the course of `verify` came to its end before.
    """
    if state.course or state.step not in (PlanStep.COPYING, PlanStep.VERIFIED):
        return state
    if differing or is_current:
        return replace(state, step=PlanStep.COPYING if differing else PlanStep.VERIFIED)
    return state


def after(state: PlanState) -> PlanState:
    """The state after the present sub-step: at the next one, or at the course's end."""
    course = state.course_of(state.course)
    at = course.sub_steps.index(state.sub_step) + 1
    if at < len(course.sub_steps):
        following = course.sub_steps[at]
        attempt = state.attempt + (following == "fence")
        return replace(state, sub_step=following, attempt=attempt)
    to = PlanStep.COPYING if course.is_compared else course.to
    if state.course == UNFENCE:  # nothing was reached; but a fence that was, is gone
        to = PlanStep.VERIFIED if state.step is PlanStep.FENCED else state.step
    return replace(state, step=to, course="", sub_step="", ends={}, quits="")
