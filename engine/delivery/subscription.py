"""A group's interest in one set of topics: which of its queues may have something, and who waits for it."""

from collections import OrderedDict, deque

from engine.delivery.pull import Pull
from engine.delivery.queue_cursor import Place


class Subscription:
    """`ring`: places that may have something to hand out, in the order of their turns; a place is taken out when it
    turns out to have nothing, and comes back when it is woken. `parked`: pulls that wait, longest first. `queued`: it
    is among the hungry already.

    Invariant between two calls of Delivery: pulls wait only while the ring is empty.
    """

    __slots__ = ("parked", "places", "queued", "ring")

    def __init__(self, places: list[Place]) -> None:
        self.places = places
        self.queued = False
        self.ring: OrderedDict[Place, None] = OrderedDict.fromkeys(places)
        self.parked: OrderedDict[Pull, None] = OrderedDict()
        for place in places:
            place.subscriptions.append(self)

    def leave(self) -> None:
        """Forget the places, which then forget this subscription."""
        for place in self.places:
            place.subscriptions.remove(self)


class Hungry:
    """Subscriptions whose parked pulls can perhaps be served, each once."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[Subscription] = deque()

    def wake(self, place: Place) -> None:
        """The place may have something again: give it a turn in all of its subscriptions."""
        place.blocked = False
        for subscription in place.subscriptions:
            if place not in subscription.ring:
                subscription.ring[place] = None
                if subscription.parked and not subscription.queued:
                    subscription.queued = True
                    self._queue.append(subscription)

    def wake_all(self, woken: list[tuple[int, int]], by_queue: dict[tuple[int, int], list[Place]]) -> None:
        """These queues, as (topic id, queue), have new records."""
        for queue in woken:
            for place in by_queue.get(queue, ()):
                self.wake(place)

    def take(self) -> Subscription | None:
        """The next one, None when there is none."""
        if not self._queue:
            return None
        subscription = self._queue.popleft()
        subscription.queued = False
        return subscription
