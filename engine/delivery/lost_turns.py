"""A check of the wake-ups themselves: cursors that have messages to give and no turn in a subscription.

A cursor leaves the ring of a subscription when it has nothing to dispatch, and a wake-up puts it back. One lost wake-up
would stop the queue for the group until something else wakes it, so a few cursors are looked at in each step. One that
looks the same a second later, and has a message that can be read and leased, has lost its turn: it gets it back.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from common.limited_log import LimitedLog
from engine.delivery.group import Group
from engine.delivery.queue_cursor import QueueCursor
from engine.errors import EngineError
from engine.log.port import DeliveryLog

limited = LimitedLog(logging.getLogger(__name__))

CURSORS_PER_STEP = 200
"""Cursors looked at per step: below 0.1 ms."""
SAME_MS = 1_000
"""Time for which a cursor has to look the same: whatever is going to wake it has done so."""
SUSPECTS_MAX = 1_000

Wake = Callable[[list[tuple[int, int]], int], None]


class LostTurns:
    """Goes round the cursors of all groups in small steps.

    Args:
        groups: the loaded groups.
        wake: gives the cursors of queues, as (topic id, queue), a turn, and serves the pulls that wait.
    Attributes:
        found: cursors so far that had lost their turn.
    """

    def __init__(self, store: DeliveryLog, groups: Mapping[str, Group], wake: Wake) -> None:
        self._store, self._groups, self._wake = store, groups, wake
        self.found = 0
        self._round: Iterator[QueueCursor] = iter(())
        self._suspects: dict[QueueCursor, tuple[int, int, int]] = {}  # (time, next offset, in flight) of the first look

    def step(self, now_ms: int) -> None:
        """Look at a few cursors, and again at those that looked as if they had lost their turn."""
        due = [each for each, (at_ms, *_) in self._suspects.items() if now_ms - at_ms >= SAME_MS]
        for cursor in due:
            _, *before = self._suspects.pop(cursor)
            if before == [cursor.next_offset, cursor.in_flight.messages] and self._has_lost_turn(cursor):
                self._give_turn(cursor, now_ms)
        looked = 0
        for cursor in islice(self._round, CURSORS_PER_STEP):
            looked += 1
            if len(self._suspects) < SUSPECTS_MAX and self._is_suspect(cursor):
                self._suspects.setdefault(cursor, (now_ms, cursor.next_offset, cursor.in_flight.messages))
        if looked < CURSORS_PER_STEP:
            self._round = self._cursors()

    def _cursors(self) -> Iterator[QueueCursor]:
        for group in list(self._groups.values()):
            if not group.policy.paused:
                for cursors in list(group.topics.values()):
                    yield from list(cursors)

    def _is_suspect(self, cursor: QueueCursor) -> bool:
        """Whether a subscription does not list the cursor, although the queue has messages that it has not given."""
        if all(cursor in each.ring for each in cursor.subscriptions):
            return False
        try:
            return cursor.next_offset < self._store.end(cursor.topic_id, cursor.queue) or cursor.next_to_give() >= 0
        except (EngineError, OSError):
            return False

    def _has_lost_turn(self, cursor: QueueCursor) -> bool:
        """Whether it could dispatch now: no bound, no order and no cold segment holds it back."""
        group = self._groups.get(cursor.group.name)
        if group is None or group is not cursor.group or group.policy.paused:
            return False
        if not self._is_suspect(cursor):
            return False
        try:
            cursor.see(*self._store.bounds(cursor.topic_id, cursor.queue))
            first = cursor.next_to_give()
            return first >= 0 and bool(self._store.read(cursor.topic_id, cursor.queue, first, 1, 1))
        except (EngineError, OSError):
            return False

    def _give_turn(self, cursor: QueueCursor, now_ms: int) -> None:
        self.found += 1
        limited.error(
            "group=%s topic=%s queue=%d offset=%d: had messages and no turn for a second, which is an error of the engine: it gets one",
            cursor.group.name, cursor.topic_name, cursor.queue, cursor.next_offset,
        )  # fmt: skip
        self._wake([(cursor.topic_id, cursor.queue)], now_ms)
