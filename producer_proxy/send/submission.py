"""Submission of messages to their targets: admission to the queue by grade, appending, and collecting of outcomes."""

import time
from collections.abc import Callable, Sequence

import gevent
from gevent.event import AsyncResult

from common.contract import Code
from producer_proxy.send.pending import PendingMessage, open_ones
from producer_proxy.targets.base import Outcome, SendTarget

UNKNOWN: Outcome = (int(Code.TIMEOUT), 0, -1)

Group = tuple[SendTarget, int]
"""A target, and the durability class of the messages there."""


def by_wait(
    pending: Sequence[PendingMessage], wait_s: Callable[[PendingMessage], float]
) -> list[tuple[float, list[PendingMessage]]]:
    """Messages by the time that they wait for their targets, the least first. Those of one topic wait equally long."""
    found: dict[float, list[PendingMessage]] = {}
    for each in pending:
        found.setdefault(wait_s(each), []).append(each)
    return sorted(found.items())


def grouped(pending: Sequence[PendingMessage], asked: int) -> dict[Group, list[PendingMessage]]:
    """Resolved messages by target and class; `asked`: the call's durability, 0: each topic's own."""
    groups: dict[Group, list[PendingMessage]] = {}
    for each in pending:
        assert each.route is not None
        target, destination = each.route
        groups.setdefault((target, target.served_as(asked or destination.durability)), []).append(each)
    return groups


def admitted(group: Group, pending: Sequence[PendingMessage]) -> list[PendingMessage]:
    """Messages that may join the target's queue; the others are refused.

    The highest grade goes first; of one grade a broker gets all messages or none.
    """
    target, durability = group
    by_grade: dict[int, list[PendingMessage]] = {}
    for each in pending:
        assert each.route is not None
        by_grade.setdefault(each.route.destination.grade, []).append(each)
    taken = 0
    for _, members in sorted(by_grade.items()):
        for each in members:
            assert each.route is not None
            binding = each.route.binding_of(each.message)
            if not target.admits(durability, each.route.destination, binding, taken, len(members)):
                each.refuse(Code.OVERLOADED)
        taken += len(open_ones(members))
    return open_ones(pending)


class Submission:
    """Submitted messages of one target and class. Messages without an id get one here."""

    def __init__(self, group: Group, pending: Sequence[PendingMessage], next_id: Callable[[], bytes]) -> None:
        self._pending = pending
        self._answer: AsyncResult = AsyncResult()
        for each in pending:
            if each.message.id is None:
                each.assigned_id = next_id()
        self._began_ns = time.time_ns()
        target, durability = group
        self._taken = target.submit(durability, [each.slice for each in pending], self._answer.set)

    def collect(self, deadline_s: float) -> None:
        """Set each message's result; blocks the greenlet until the deadline, in monotonic seconds.

        What was not sent by then is withdrawn from its target.
        """
        try:
            outcomes = self._answer.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except gevent.Timeout:
            known = [None] * len(self._pending) if isinstance(self._taken, bool) else self._taken.withdraw()
            outcomes = [UNKNOWN if each is None else each for each in known]
        ended_ns = time.time_ns()
        for each, outcome in zip(self._pending, outcomes, strict=True):
            each.appended = self._began_ns, ended_ns, int(outcome[0])
            each.settle(*outcome)
