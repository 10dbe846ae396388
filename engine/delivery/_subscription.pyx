# cython: language_level=3
"""A group's interest in one set of topics, and who is to be served. Twin: subscription.py, which says what the fields mean."""
from collections import OrderedDict, deque

from engine.delivery._queue_cursor cimport Place


cdef class Subscription:
    """As the twin's."""

    def __init__(self, list places):
        self.places = places
        self.queued = False
        self.ring = OrderedDict.fromkeys(places)
        self.parked = OrderedDict()
        for place in places:
            (<Place>place).subscriptions.append(self)

    def leave(self):
        """As the twin's."""
        for place in self.places:
            (<Place>place).subscriptions.remove(self)


cdef class Hungry:
    """As the twin's."""

    cdef object queue

    def __init__(self):
        self.queue = deque()

    cpdef wake(self, Place place):
        """As the twin's."""
        cdef Subscription subscription
        place.blocked = False
        for subscription in place.subscriptions:
            if place not in subscription.ring:
                subscription.ring[place] = None
                if subscription.parked and not subscription.queued:
                    subscription.queued = True
                    self.queue.append(subscription)

    def wake_all(self, list woken, dict by_queue):
        """As the twin's."""
        cdef list places
        for queue in woken:
            places = by_queue.get(queue)
            if places is not None:
                for place in places:
                    self.wake(<Place>place)

    def take(self):
        """As the twin's."""
        cdef Subscription subscription
        if not self.queue:
            return None
        subscription = self.queue.popleft()
        subscription.queued = False
        return subscription
