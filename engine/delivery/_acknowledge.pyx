# cython: language_level=3
"""Acknowledgements: settles DONE for leases of this process.

Reference: acknowledge.py, which handles everything else.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE

from engine.delivery._queue_cursor cimport QueueCursor
from engine.delivery._receipt cimport Receipts, TokenBytes
from engine.link.constants cimport CODE_OK, TOKEN_SIZE, TOKEN_VERSION

from engine.delivery import acknowledge

cdef enum:
    DONE = 0


cdef class Acknowledgements:
    """Native form of Acknowledgements; see the reference."""

    cdef object lease_clock, counts, wake_list, rest
    cdef dict dirty
    cdef uint64_t lease_first, lease_last     # of this process, while apply() runs

    def __init__(self, store, settings, lease_clock, dict dirty, counts, wake_list, dead_lettering, random,
                 withheld):
        self.rest = acknowledge.Acknowledgements(
            store, settings, lease_clock, dirty, counts, wake_list, dead_lettering, random, withheld
        )
        self.lease_clock, self.dirty, self.counts, self.wake_list = lease_clock, dirty, counts, wake_list

    def apply(self, group, list acks, int64_t now_ms):
        """Apply all; returns their codes in order."""
        cdef int64_t counted = 0
        cdef int64_t messages
        cdef Receipts receipts = group.receipts
        cdef dict by_hash = group.by_hash
        codes = []
        self.lease_first, self.lease_last = self.lease_clock.first, self.lease_clock.last
        for ack in acks:
            messages = self.settle(receipts, by_hash, ack)
            if messages:
                counted += messages
                codes.append(CODE_OK)
            else:
                codes.append(self.rest.apply_one(group, ack, now_ms))
        if counted:
            self.counts.acks += counted
        return codes

    cdef int64_t settle(self, Receipts receipts, dict by_hash, ack) except -1:
        """Return the number of settled messages; 0 leaves the acknowledgement to the reference.

        Settling twice does no harm.

        Bounds: `token` is a copy of exactly TOKEN_SIZE bytes; `token.queue` is checked against the length of `cursors`.
        """
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
        if token.version != TOKEN_VERSION or not receipts.is_ours(&token):
            return 0
        cursors = by_hash.get(token.topic_hash)
        if cursors is None or token.queue >= PyList_GET_SIZE(cursors):
            return 0
        cursor = cursors[token.queue]
        if cursor is None:  # see Group.find()
            return 0
        self.dirty[cursor] = None
        first += <int64_t>token.base_offset
        if not cursor.settle(first, first + count, token.lease, False):
            return 0
        if cursor.blocked:
            self.wake_list.wake(cursor)
        return count
