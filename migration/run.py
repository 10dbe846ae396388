"""Performs a plan's courses: facts, decision, effect or write, again and again until the course ends.

The state is written before a sub-step begins, so a killed run is resumed at its sub-step.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from common.clock import Clock
from common.config.errors import InvalidDefinition, StoreUnavailable, VersionConflict
from common.errors import PenstockError
from common.quoting import quoted
from engine.client.admin import AdminError
from engine.link.errors import LinkError
from migration.entries import PlanEntry, PlanStore
from migration.errors import PlanConflict, PlanRefused
from migration.facts import Facts, Rules
from migration.plan import ORDERS, MigrationPlan
from migration.recipes.course import UNFENCE
from migration.states import Do, PlanState, Refuse, Wait, Write, begin, give_up
from migration.sub_steps.registry import SUB_STEPS, decide
from migration.sub_steps.sub_step import leaving, left_ends

LOOK_S = 0.1
"""Pause before the facts are asked for again."""
HOUR_MS = 3_600_000


def rules_of(plan: MigrationPlan, accepted: frozenset[str] = frozenset()) -> Rules:
    """The plan's bounds as deciders take them."""
    gates, soak_ms = plan.gates, plan.limits.soak_hours * HOUR_MS
    is_strict, fence_ms = plan.order == ORDERS[0], plan.limits.fence_s * 1000
    return Rules(plan.name, gates.lag_messages, soak_ms, is_strict, gates.error_rate, accepted, fence_ms)


def _told(fault: Exception) -> str:
    """The fault as the reason why a course is given up."""
    if isinstance(fault, AdminError | LinkError):
        return f"engine: {fault}"
    return (
        str(fault) if isinstance(fault, PenstockError | OSError) else f"internal error: {type(fault).__name__}: {fault}"
    )


class PlanWorld(Protocol):
    """See Deployment."""

    def facts(
        self, with_positions: bool, with_claims: bool = False, with_leftovers: bool = False, with_errors: bool = False,
        with_policies: bool = False, with_groups: bool = False, with_tails: bool = False,
    ) -> Facts: ...  # fmt: skip

    def perform(self, item: Do, state: PlanState) -> None: ...


class CourseRun:
    """One run of a course.

    Args:
        plans: where the state is kept.
        entry: the plan, whose operator this process is.
        accepted: gates that the operator accepts.
        pause: waits for so many seconds.
        progress: called with a sentence when the run waits for something else than before, and after each sub-step.
    """

    def __init__(
        self, world: PlanWorld, plans: PlanStore, entry: PlanEntry, clock: Clock, accepted: frozenset[str],
        pause: Callable[[float], object], progress: Callable[[str], object] = lambda sentence: None,
    ) -> None:  # fmt: skip
        self._world, self._plans, self.entry, self._clock = world, plans, entry, clock
        self._accepted, self._pause, self._progress = accepted, pause, progress
        self._since_s = self._still_since_s = clock.monotonic_s()
        self._still: dict[str, tuple[int, ...]] = {}
        self._told = ""
        self._done: Do | None = None

    def run(self, command: str) -> PlanEntry:
        """Perform a command, or go on with it. Returns when its course has ended.

        Raises:
            PlanRefused: it may not begin, or was given up.
            VersionConflict: another process has written the plan's state.
        """
        state = self.entry.state
        begun = begin(state, command, self._world.facts(with_positions=False))
        if isinstance(begun, Refuse):
            raise PlanRefused(f"plan {quoted(state.plan)}: {begun.sentence}")
        if begun != state:
            words = f", accepting {', '.join(sorted(self._accepted))}" if self._accepted else ""
            self._write(begun, f"{command} begun{words}")
        return self.resume()

    def resume(self) -> PlanEntry:
        """Go on with the course at work, if there is one. Raises as `run`."""
        cause: Exception | None = None
        while self.entry.state.course:
            try:
                self._go_on()
            except (VersionConflict, StoreUnavailable, PlanConflict):
                raise  # nothing can be written, or another process is at work
            except Exception as fault:
                if not self._ends_course(fault):
                    raise
                self._take(give_up(self.entry.state, _told(fault)))
                cause = fault
        if self.entry.state.reason:
            raise PlanRefused(f"plan {quoted(self.entry.plan.name)}: {self.entry.state.reason}") from cause
        return self.entry

    def _go_on(self) -> None:
        """Decide once, and do what was decided."""
        decision = decide(self.entry.state, self._facts(), self.rules)
        if isinstance(decision, Write):
            self._take(decision.state)
        elif isinstance(decision, Do) and decision != self._done:
            self._check_is_ours()
            self._world.perform(decision, self.entry.state)
            self._done = decision
        else:  # what was done is not seen yet, or another writer was faster
            if isinstance(decision, Wait):
                self._tell(decision.sentence)
            self._done = None
            self._pause(LOOK_S)

    def _check_is_ours(self) -> None:
        """Raises PlanConflict: the configuration has another state of the plan, or none, such as one that was emptied."""
        try:
            self._plans.check(self.entry)
        except VersionConflict as conflict:
            raise self._conflict(conflict) from conflict

    def _conflict(self, conflict: VersionConflict) -> PlanConflict:
        plan = f"plan {quoted(self.entry.plan.name)}"
        if conflict.found:
            return PlanConflict(f"{plan}: another process has changed it: {conflict}")
        return PlanConflict(
            f"{plan}: its entry is missing from the configuration, and nothing more was changed: restore what was lost, "
            "see `penstock config verify`, and store the plan again with `penstock migrate plan`"
        )

    def _ends_course(self, fault: Exception) -> bool:
        """Whether the course ends by this, and its fences are lifted: a work item that is impossible, or anything behind a
        fence. What is fenced must not wait for a person.
        """
        if self.entry.state.course == UNFENCE:
            return False
        if isinstance(fault, PlanRefused | InvalidDefinition):
            return True
        return any(each.fence for each in self._world.facts(with_positions=False).topics.values())

    @property
    def rules(self) -> Rules:
        return rules_of(self.entry.plan, self._accepted)

    def _facts(self) -> Facts:
        state, sub_step = self.entry.state, SUB_STEPS[self.entry.state.sub_step]
        facts = self._world.facts(
            sub_step.asks_positions,
            sub_step.asks_claims,
            sub_step.asks_leftovers,
            sub_step.asks_errors,
            sub_step.asks_policies,
            sub_step.asks_groups,
            sub_step.asks_tails,
        )
        now_s = self._clock.monotonic_s()
        still = {name: left_ends(state, each) for name, each in leaving(state, facts).items()}
        if still != self._still:
            self._still, self._still_since_s = still, now_s
        return replace(
            facts,
            waited_ms=int((now_s - self._since_s) * 1000),
            quiet_ms=int((now_s - self._still_since_s) * 1000),
        )

    def _take(self, state: PlanState) -> None:
        """Write the next state; tells the operator and the history of it where something was reached or given up."""
        before, what = self.entry.state, ""
        if not state.course:
            what = f"{before.quits or before.course} given up: {state.reason}" if state.reason else f"now {state.step}"
        self._write(state, what)

    def _write(self, state: PlanState, what: str) -> None:
        try:
            self.entry = self._plans.write(self.entry, state, what)
        except VersionConflict as conflict:
            raise self._conflict(conflict) from conflict
        self._since_s = self._still_since_s = self._clock.monotonic_s()
        self._still, self._done = {}, None
        self._tell(what or f"{state.course}: {state.sub_step}")

    def _tell(self, sentence: str) -> None:
        if sentence != self._told:
            self._told = sentence
            self._progress(sentence)
