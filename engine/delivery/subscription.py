# cython: annotation_typing=False
"""Subscriptions: the queues of one set of topics that may have messages, and the pulls that wait for them."""

from collections import OrderedDict, deque

from engine.delivery.pull import Pull
from engine.delivery.queue_cursor import QueueCursor


class Subscription:
    """One set of topics of one group.

    Attributes:
        cursors: one per queue of the topics, but for queues without a record of topics with many.
        ring: cursors that may have something to dispatch, in the order of their turns. A cursor without messages leaves
            the ring; a wake-up puts it back.
        parked: pulls that wait, longest first.
        queued: whether the wake list already has this subscription.

    Invariant between two calls of Delivery: pulls wait only while the ring is empty.
    """

    __slots__ = ("cursors", "parked", "queued", "ring")

    def __init__(self, cursors: list) -> None:
        self.cursors = cursors
        self.queued = False
        self.ring: OrderedDict[QueueCursor, None] = OrderedDict.fromkeys(cursors)
        self.parked: OrderedDict[Pull, None] = OrderedDict()
        for cursor in cursors:
            cursor.subscriptions.append(self)

    def add(self, cursor: QueueCursor) -> None:
        """Add the cursor of a queue that has its first record; a wake-up puts it into the ring."""
        self.cursors.append(cursor)
        cursor.subscriptions.append(self)

    def leave(self) -> None:
        """Remove this subscription from its cursors."""
        for cursor in self.cursors:
            cursor.subscriptions.remove(self)


class WakeList:
    """Subscriptions whose parked pulls can perhaps be served, each once."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[Subscription] = deque()

    def wake(self, cursor: QueueCursor) -> None:
        """Give the cursor a turn in all of its subscriptions: it may have messages again."""
        cursor.blocked = False
        for subscription in cursor.subscriptions:
            if cursor not in subscription.ring:
                subscription.ring[cursor] = None
                if subscription.parked and not subscription.queued:
                    subscription.queued = True
                    self._queue.append(subscription)

    def wake_all(self, woken: list, by_queue: dict) -> None:
        """Wake the cursors of queues with new records.

        Args:
            woken: (topic id, queue) pairs.
            by_queue: cursors of all groups by (topic id, queue).
        """
        for queue in woken:
            for cursor in by_queue.get(queue, ()):
                self.wake(cursor)

    def pop(self) -> "Subscription | None":
        """Remove and return the next subscription; None when the list is empty."""
        if not self._queue:
            return None
        subscription = self._queue.popleft()
        subscription.queued = False
        return subscription
