"""All sub-steps by name, and the decision of the one that is at work."""

from collections.abc import Mapping

from migration.facts import MISSING, Facts, Rules
from migration.states import Decision, Do, PlanState, Refuse, Wait, Write, after, give_up
from migration.sub_steps import (
    configuring,
    copying,
    dual_reading,
    dual_writing,
    error_rate,
    fencing,
    kafka_topics,
    leftovers,
)
from migration.sub_steps.sub_step import SubStep, leaving, shown

SUB_STEPS: Mapping[str, SubStep] = {
    **configuring.SUB_STEPS, **copying.SUB_STEPS, **fencing.SUB_STEPS, **dual_writing.SUB_STEPS,
    **dual_reading.SUB_STEPS, **leftovers.SUB_STEPS, **error_rate.SUB_STEPS, **kafka_topics.SUB_STEPS,
}  # fmt: skip
GATES = (
    copying.LAG, configuring.SOAK, configuring.LATE, kafka_topics.SOURCE, *dual_writing.GATES, dual_reading.UNREAD, dual_reading.GROUPS,
    *leftovers.GATES, error_rate.ERROR_RATE,
)  # fmt: skip
"""Gates that an operator may accept."""


def decide(state: PlanState, facts: Facts, rules: Rules) -> Decision:
    """The next thing to do for the plan's present course; None: no course is at work."""
    if not state.course:
        return None
    sub_step = SUB_STEPS[state.sub_step]
    if sub_step.is_guarded and (gone := [name for name, each in facts.topics.items() if each.home == MISSING]):
        words = f"{shown(gone)}: missing from the configuration: restore it, see `penstock config verify`"
        return Write(give_up(state, words))
    if sub_step.is_guarded and not leaving(state, facts):
        return Write(after(state))  # it is done already
    if sub_step.is_guarded and (ended := _without_fence(state, facts)):
        return Write(give_up(state, ended))
    answer = sub_step.decide(state, facts, rules)
    if answer is None:
        return Write(after(state))
    if isinstance(answer, Refuse):
        return Write(give_up(state, answer.sentence))
    # Proxies count a fence's time from the first message that they refuse: a topic without senders stays fenced.
    if sub_step.is_guarded and facts.waited_ms >= rules.fence_ms and isinstance(answer, Do | Wait):
        return Write(give_up(state, _overdue(answer, facts.waited_ms)))
    return answer


def _overdue(answer: Do | Wait, waited_ms: int) -> str:
    """Why the course does not go on after the fence's time."""
    told = answer.sentence if isinstance(answer, Wait) else f"{answer.work} of {shown(answer.topics)} is not done"
    return f"{told} {waited_ms // 1000} s behind the fence: nothing was lost, begin again"


def _without_fence(state: PlanState, facts: Facts) -> str:
    """Why the course cannot go on after its fence; empty: every topic that is still to switch has the fence."""
    gone = [name for name, each in leaving(state, facts).items() if each.fence != state.fence_id]
    return f"the fence of {shown(gone)} has ended before the cut: nothing was lost, begin again" if gone else ""
