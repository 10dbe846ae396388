"""A group's interest in one set of topics: which of its queues may have something, and who waits for it."""

from collections import OrderedDict, deque

from engine.delivery.pull import Pull
from engine.delivery.queue_cursor import QueueCursor


class Subscription:
    """`ring`: cursors that may have something to hand out, in the order of their turns; a cursor is taken out when it
    turns out to have nothing, and comes back when it is woken. `parked`: pulls that wait, longest first. `queued`: it
    is among the wake_list already.

    Invariant between two calls of Delivery: pulls wait only while the ring is empty.
    """

    __slots__ = ("parked", "cursors", "queued", "ring")

    def __init__(self, cursors: list[QueueCursor]) -> None:
        self.cursors = cursors
        self.queued = False
        self.ring: OrderedDict[QueueCursor, None] = OrderedDict.fromkeys(cursors)
        self.parked: OrderedDict[Pull, None] = OrderedDict()
        for cursor in cursors:
            cursor.subscriptions.append(self)

    def leave(self) -> None:
        """Forget the cursors, which then forget this subscription."""
        for cursor in self.cursors:
            cursor.subscriptions.remove(self)


class WakeList:
    """Subscriptions whose parked pulls can perhaps be served, each once."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[Subscription] = deque()

    def wake(self, cursor: QueueCursor) -> None:
        """The cursor may have something again: give it a turn in all of its subscriptions."""
        cursor.blocked = False
        for subscription in cursor.subscriptions:
            if cursor not in subscription.ring:
                subscription.ring[cursor] = None
                if subscription.parked and not subscription.queued:
                    subscription.queued = True
                    self._queue.append(subscription)

    def wake_all(self, woken: list[tuple[int, int]], by_queue: dict[tuple[int, int], list[QueueCursor]]) -> None:
        """These queues, as (topic id, queue), have new records."""
        for queue in woken:
            for cursor in by_queue.get(queue, ()):
                self.wake(cursor)

    def take(self) -> Subscription | None:
        """The next one, None when there is none."""
        if not self._queue:
            return None
        subscription = self._queue.popleft()
        subscription.queued = False
        return subscription
