# cython: language_level=3
"""C types for subscription.py, which is compiled as `_subscription`."""
cimport cython

from engine.delivery._queue_cursor cimport QueueCursor as Cursor


cdef class Subscription:
    cdef readonly list cursors
    cdef readonly object ring
    cdef readonly object parked
    cdef public bint queued

    cpdef add(self, Cursor cursor)

    @cython.locals(cursor=Cursor)
    cpdef leave(self)


cdef class WakeList:
    cdef object _queue

    @cython.locals(subscription=Subscription)
    cpdef wake(self, Cursor cursor)

    @cython.locals(cursor=Cursor)
    cpdef wake_all(self, list woken, dict by_queue)

    @cython.locals(subscription=Subscription)
    cpdef pop(self)
