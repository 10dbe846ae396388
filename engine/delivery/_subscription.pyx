# cython: language_level=3
"""A group's interest in one set of topics, and who is to be served. Twin: subscription.py, which says what the fields mean."""
from collections import OrderedDict, deque

from engine.delivery._queue_cursor cimport QueueCursor


cdef class Subscription:
    """As the twin's."""

    def __init__(self, list cursors):
        self.cursors = cursors
        self.queued = False
        self.ring = OrderedDict.fromkeys(cursors)
        self.parked = OrderedDict()
        for cursor in cursors:
            (<QueueCursor>cursor).subscriptions.append(self)

    def leave(self):
        """As the twin's."""
        for cursor in self.cursors:
            (<QueueCursor>cursor).subscriptions.remove(self)


cdef class WakeList:
    """As the twin's."""

    cdef object queue

    def __init__(self):
        self.queue = deque()

    cpdef wake(self, QueueCursor cursor):
        """As the twin's."""
        cdef Subscription subscription
        cursor.blocked = False
        for subscription in cursor.subscriptions:
            if cursor not in subscription.ring:
                subscription.ring[cursor] = None
                if subscription.parked and not subscription.queued:
                    subscription.queued = True
                    self.queue.append(subscription)

    def wake_all(self, list woken, dict by_queue):
        """As the twin's."""
        cdef list cursors
        for queue in woken:
            cursors = by_queue.get(queue)
            if cursors is not None:
                for cursor in cursors:
                    self.wake(<QueueCursor>cursor)

    def take(self):
        """As the twin's."""
        cdef Subscription subscription
        if not self.queue:
            return None
        subscription = self.queue.popleft()
        subscription.queued = False
        return subscription
