# cython: language_level=3
"""Taking acknowledgements. Twin: acknowledge.py, to which everything goes that is not DONE of a lease that this process gave."""
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE

from engine.delivery._queue_cursor cimport QueueCursor
from engine.delivery._receipt cimport TOKEN_SIZE, Receipts, TokenBytes

from engine.delivery import acknowledge

cdef enum:
    DONE = 0
    OK = 0


cdef class Acknowledgements:
    """As the twin's."""

    cdef object lease_clock, counts, wake_list, rest
    cdef set dirty
    cdef uint64_t lease_first, lease_last     # of this process, while take() ranges

    def __init__(self, store, settings, lease_clock, set dirty, counts, wake_list, dead_lettering, random):
        self.rest = acknowledge.Acknowledgements(store, settings, lease_clock, dirty, counts, wake_list, dead_lettering, random)
        self.lease_clock, self.dirty, self.counts, self.wake_list = lease_clock, dirty, counts, wake_list

    def take(self, group, list acks, int64_t now_ms):
        """As the twin's."""
        cdef int64_t counted = 0
        cdef int64_t messages
        cdef Receipts receipts = group.receipts
        cdef dict by_hash = group.by_hash
        codes = []
        self.lease_first, self.lease_last = self.lease_clock.first, self.lease_clock.last
        for ack in acks:
            messages = self.take_plain(receipts, by_hash, ack)
            if messages:
                counted += messages
                codes.append(OK)
            else:
                codes.append(self.rest.take_one(group, ack, now_ms))
        if counted:
            self.counts.acks += counted
        return codes

    cdef int64_t take_plain(self, Receipts receipts, dict by_hash, ack) except -1:
        """How many messages counted; 0 when the twin has to look at it. Settling twice does no harm, so it may look at what was settled."""
        cdef TokenBytes token
        cdef int64_t first = (<tuple>ack)[1]
        cdef int64_t count = (<tuple>ack)[2]
        cdef bytes raw = (<tuple>ack)[0]
        cdef list cursors
        cdef QueueCursor cursor
        if PyBytes_GET_SIZE(raw) != TOKEN_SIZE or <int64_t>(<tuple>ack)[3] != DONE or <int64_t>(<tuple>ack)[4] < -1:
            return 0
        memcpy(&token, PyBytes_AS_STRING(raw), TOKEN_SIZE)
        if count < 1 or first + count > token.count or not self.lease_first < token.lease <= self.lease_last:
            return 0
        if token.version != 1 or not receipts.is_ours(&token):
            return 0
        cursors = by_hash.get(token.topic_hash)
        if cursors is None or token.queue >= PyList_GET_SIZE(cursors):
            return 0
        cursor = cursors[token.queue]
        self.dirty.add(cursor)
        first += <int64_t>token.base_offset
        if not cursor.settle(first, first + count, token.lease, False):
            return 0
        if cursor.blocked:
            self.wake_list.wake(cursor)
        return count
