"""Order by key while a topic's keys move to other queues, after the topic got more queues.

A message whose key had another queue before the growth waits until that queue has no earlier message of the key. Only
groups with order by key have such an object, and only until all old queues are acknowledged up to the growth.

Invariant: a message waits only for messages that are older by the growths, so waiting never goes in a circle.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise

from common.keyhash import queue_of
from engine.delivery.queue_cursor import QueueCursor
from engine.errors import CorruptionError, UnreadableError
from engine.log.growth import QueueGrowth
from engine.log.port import DeliveryLog

WINDOW_MS = 3_000
"""Time after a growth in which proxies may still use the old number of queues."""
CHECKED_MAX = 4_000
"""Waiting messages checked per step: about a millisecond."""

Needs = list[tuple["OldQueues", int]]
"""Old queues of a key, which have to be free of it: the growth, the queue."""


class OldQueues:
    """The queues before one growth.

    Attributes:
        started: end offset of each at the growth; messages from there on may be of the new number of queues.
        ends: offset below which messages may be of the old number of queues; None while the window is open.
    """

    def __init__(self, growth: QueueGrowth, waiting_max: int) -> None:
        self.at_ms, self.started = growth.at_ms, growth.ends
        self.ends: list[int] | None = None
        self._waiting_max = waiting_max
        self._until_ms: int | None = None
        self._following: OldQueues | None = None

    def watch_window(self, topic_id: int, store: DeliveryLog, now_ms: int, wall_ms: int) -> None:
        """Close the window when its time has passed, by the wall clock or by the monotonic one."""
        if self.ends is not None:
            return
        self._until_ms = self._until_ms or now_ms + WINDOW_MS
        if now_ms >= self._until_ms or wall_ms >= self.at_ms + WINDOW_MS:
            with suppress(OSError, UnreadableError):  # else the next step tries again
                self.ends = [
                    max(started, _offset_at(store, topic_id, queue, self.at_ms + WINDOW_MS))
                    for queue, started in enumerate(self.started)
                ]
        if self.ends is not None and self._following is not None:
            self.ends = list(map(min, self.ends, self._following.started))

    def end_before(self, following: "OldQueues") -> None:
        """Another growth follows, which ends the window; else messages of both could wait for each other."""
        self._following = following
        if self.ends is not None:
            self.ends = list(map(min, self.ends, following.started))

    def is_free(self, cursor: QueueCursor, key_number: int, waits_for: Callable[[int, int], bool]) -> bool:
        """Whether the cursor of an old queue has no open message of the key from before the growth.

        Args:
            waits_for: whether the message at (queue, offset) waits for a queue of this growth itself.
        """
        if self.ends is None or not cursor.is_sorted or cursor.keys is None:
            return False
        end = self.ends[cursor.queue]
        if cursor.next_offset < end:
            # Messages that wait for other queues must not keep the cursor from the growth's window for ever.
            is_full = cursor.keys.waiting >= self._waiting_max
            if not is_full or cursor.next_offset < self.started[cursor.queue]:
                return False
        first = cursor.keys.first_open(key_number)
        # A message that waits for a queue of this growth is of the new number of queues, and so not older.
        return not 0 <= first < end or waits_for(cursor.queue, first)

    def is_done(self, cursors: Sequence[QueueCursor]) -> bool:
        """Whether the group has acknowledged all that the old queues had."""
        return self.ends is not None and all(
            queue < len(cursors) and cursors[queue].contiguous >= end for queue, end in enumerate(self.ends)
        )


class KeyMoves:
    """Moving keys of one group in one topic.

    Args:
        cursors_of: returns the group's cursors in the topic, one per queue.
    """

    def __init__(
        self, topic_id: int, cursors_of: Callable[[], list[QueueCursor]], store: DeliveryLog, waiting_max: int
    ) -> None:
        self._topic_id, self._cursors_of, self._store, self._waiting_max = topic_id, cursors_of, store, waiting_max
        self._growths: list[OldQueues] = []
        self._known: list[QueueGrowth] = []  # all that were ever followed
        self._held: dict[tuple[int, int], tuple[int, Needs]] = {}  # (key's number, needs) by queue and offset

    def follow(self, growths: Sequence[QueueGrowth]) -> None:
        """Keep the order over these growths, and have all cursors ask this object.

        One that a crash prevented is in the log, too, until the growth itself replaces it: with later ends.
        """
        same = [growth for growth, known in zip(growths, self._known, strict=False) if growth == known]
        replaced = self._known[len(same) :]
        self._growths = [each for each in self._growths if (each.at_ms, each.started) not in replaced]
        for growth in growths[len(same) :]:
            self._growths.append(OldQueues(growth, self._waiting_max))
        self._known = list(growths)
        for older, following in pairwise(self._growths):
            older.end_before(following)
        for cursor in self._cursors_of():
            cursor.set_moves(QueueMoves(self, cursor.queue))

    def must_wait(self, queue: int, offset: int, key_number: int, key: bytes) -> bool:
        """Whether the message waits for another queue; notes it then."""
        needs = []
        for growth in self._growths:
            if queue < len(growth.started) and offset < growth.started[queue]:
                continue  # older than this growth
            old = queue_of(key, len(growth.started))
            if old != queue:
                needs.append((growth, old))
        if self._are_free(needs, key_number):
            return False
        self._held[queue, offset] = key_number, needs
        return True

    def is_held(self, queue: int, offset: int) -> bool:
        """Whether the message waits for another queue."""
        return (queue, offset) in self._held

    @property
    def is_over(self) -> bool:
        """Whether all old queues are done and no message waits."""
        return not self._growths and not self._held

    def detach(self) -> None:
        """Have no cursor ask this object any more."""
        for cursor in self._cursors_of():
            cursor.set_moves(None)

    def step(self, now_ms: int, wall_ms: int) -> list[QueueCursor]:
        """Release messages; returns the cursors that may dispatch again."""
        cursors = self._cursors_of()
        for growth in self._growths:
            growth.watch_window(self._topic_id, self._store, now_ms, wall_ms)
        self._growths = [growth for growth in self._growths if not growth.is_done(cursors)]
        woken: dict[QueueCursor, None] = {}
        for place in list(self._held)[:CHECKED_MAX]:
            number, needs = self._held.pop(place)
            if not self._are_free(needs, number):
                self._held[place] = number, needs  # to the end: others come first in the next step
                continue
            cursor = cursors[place[0]]
            if cursor.end_hold(place[1]):
                woken[cursor] = None
        return list(woken)

    def _are_free(self, needs: Needs, key_number: int) -> bool:
        cursors = self._cursors_of()
        return all(
            growth not in self._growths
            or (old < len(cursors) and growth.is_free(cursors[old], key_number, partial(self._waits_for, growth)))
            for growth, old in needs
        )

    def _waits_for(self, growth: OldQueues, queue: int, offset: int) -> bool:
        held = self._held.get((queue, offset))
        return held is not None and any(growth is each for each, _ in held[1])


class QueueMoves:
    """The moves as one cursor's KeyOrder sees them."""

    def __init__(self, moves: KeyMoves, queue: int) -> None:
        self._moves, self._queue = moves, queue

    def must_wait(self, offset: int, key_number: int, key: bytes) -> bool:
        """Whether the message waits for another queue; notes it then."""
        return self._moves.must_wait(self._queue, offset, key_number, key)

    def is_held(self, offset: int) -> bool:
        """Whether the message waits for another queue."""
        return self._moves.is_held(self._queue, offset)


def _offset_at(store: DeliveryLog, topic_id: int, queue: int, at_ms: int) -> int:
    try:
        return store.offset_at_time(topic_id, queue, at_ms)
    except CorruptionError:
        return 0
