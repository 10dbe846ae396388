# cython: language_level=3
"""Filling a pull. Twin: handout.py, which says what is done and why; here it is done without Python objects for what each run needs.

A pull of single messages from many queues is as many runs, so what a run costs is what a message costs.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.list cimport PyList_GET_SIZE

from engine.delivery._key_order cimport number_of
from engine.delivery._queue_cursor cimport Place
from engine.delivery._reading cimport AGAIN, EMPTY, HAS_TRAILER, PieceHead, Reading
from engine.delivery._receipt cimport Receipts, TokenBytes

from engine.filter.native import sift
from engine.delivery import shared_filters as sharing
from engine.delivery import filter_budget as sifting
from engine.delivery.key_order import sort_open


cdef enum:
    SIFT_MESSAGES = 1024         # of sifting.py


cdef class HandOut(Reading):
    """As the twin's."""

    cdef object counts
    cdef int64_t quantum_bytes, older_ns_max
    cdef object group
    cdef readonly dict later
    cdef readonly object shared
    cdef object allowance
    # The pull in work; between two calls of fill() they mean nothing.
    cdef int64_t messages_left, bytes_left, invisible_ms
    cdef Receipts receipts
    cdef int64_t delivered, redelivered, delivered_bytes

    def __init__(self, store, settings, clockwork, set dirty, counts, requests, clock):
        Reading.__init__(self, store, clockwork, dirty, requests, clock)
        self.counts, self.quantum_bytes, self.older_ns_max = counts, settings.quantum_bytes, settings.older_us * 1000
        self.later, self.allowance = {}, sifting.Allowance(settings.sift_tests)
        self.shared = sharing.SharedSifting(settings.shared_filters_min)

    def fill(self, pull, group, int64_t now_ms):
        """As the twin's."""
        ring = pull.subscription.ring
        if not ring:
            return
        self.now_ms = now_ms
        self.messages_left, self.bytes_left, self.invisible_ms = pull.messages_left, pull.bytes_left, pull.invisible_ms
        self.group, self.receipts, self.out = group, group.receipts, pull.pieces
        self.delivered = self.redelivered = self.delivered_bytes = 0
        self.lease = self.older_ns = 0
        try:
            self.turn(ring)
        finally:
            pull.messages_left, pull.bytes_left = self.messages_left, self.bytes_left
            pull.piece_count = PyList_GET_SIZE(self.out)
            self.group = self.receipts = self.out = None
            if self.lease:
                self.clockwork.last = self.lease
                self.count()

    cdef int count(self) except -1:
        self.counts.deliveries += self.delivered
        self.counts.delivered_bytes += self.delivered_bytes
        if self.redelivered:
            self.counts.redeliveries += self.redelivered
        return 0

    cdef int turn(self, ring) except -1:
        cdef Place place
        move_to_end = ring.move_to_end
        while ring and self.messages_left > 0 and self.bytes_left > 0:
            place = next(iter(ring))
            place.credit = min(place.credit + self.quantum_bytes, self.quantum_bytes)
            if place.credit <= 0 or self.give(place):
                move_to_end(place)
            else:
                del ring[place]
                place.credit = 0
            if self.older_ns > self.older_ns_max and self.out:
                break
        return 0

    cdef bint give(self, Place place) except -1:
        """Hand out of one place until its turn is over or the pull is full; False when the place has nothing left."""
        cdef bint seen = False
        cdef int64_t first = 0
        cdef int64_t end = 0
        cdef int64_t given_end = 0
        cdef int64_t size = 0
        cdef Py_ssize_t start
        cdef int how
        if not place.is_sorted and not sort_open(place, self.store):
            self.store.watch(place.topic_id, place.queue)
            return False
        if place.filter is not None:
            return self.give_sifted(place)
        while self.messages_left > 0 and self.bytes_left > 0 and place.credit > 0:
            if not place.next_run(self.messages_left, &first, &end):
                if seen:
                    self.rest(place)
                    return False
                self.see(place)
                seen = True
                continue
            start = PyList_GET_SIZE(self.out)
            how = self.read(place, first, end, min(place.credit, self.bytes_left), &given_end, &size)
            if how == AGAIN:
                continue
            if how == EMPTY:
                self.store.watch(place.topic_id, place.queue)
                return False
            if size > self.bytes_left and start:
                del self.out[start:]
                self.bytes_left = 0
                break
            if place.keys is not None and first == place.next_offset:
                size = self.take_by_key(place, start)
            else:
                self.take(place, first, given_end, start)
            self.bytes_left -= size
            place.credit -= size
            self.delivered_bytes += size
            if given_end < end:
                break  # as in the twin
        return True

    cdef bint give_sifted(self, Place place) except -1:
        """As give(), of a group that takes a part only."""
        cdef bint seen = False
        cdef int64_t first = 0
        cdef int64_t end = 0
        cdef int64_t given_end = 0
        cdef int64_t size = 0
        cdef Py_ssize_t start
        cdef int64_t begin
        cdef int how
        cdef bint fresh
        cdef list pieces
        while self.messages_left > 0 and self.bytes_left > 0 and place.credit > 0:
            if not self.allowance.is_left(self.now_ms):
                self.later[place] = None
                return False
            if not place.next_run(SIFT_MESSAGES, &first, &end):
                if seen:
                    self.rest(place)
                    return False
                self.see(place)
                seen = True
                continue
            fresh = first == place.next_offset
            if fresh:
                begin, end = self.shared.narrow(place, first, end)
                self.leave_out(place, first, begin)
                first = begin
                self.allowance.take(1, 0)
                if begin == end:
                    continue
            start = PyList_GET_SIZE(self.out)
            how = self.read(place, first, end, place.credit, &given_end, &size)
            if how == AGAIN:
                continue
            if how == EMPTY:
                self.store.watch(place.topic_id, place.queue)
                return False
            place.credit -= size
            pieces = self.out[start:]
            del self.out[start:]
            for piece in pieces:
                if fresh and self.learn(place, piece):
                    self.allowance.take((<PieceHead*>PyBytes_AS_STRING(piece)).count, 0)
                if not self.sift(place, piece):
                    return True
        return True

    cdef bint learn(self, Place place, bytes piece) except -1:
        return self.shared.learn(place, (<PieceHead*>PyBytes_AS_STRING(piece)).first_offset, piece, sizeof(PieceHead))

    cdef bint sift(self, Place place, bytes piece) except -1:
        """As the twin's, of a piece without token."""
        cdef PieceHead* head = <PieceHead*>PyBytes_AS_STRING(piece)
        cdef int64_t at = <int64_t>head.first_offset
        cdef int64_t done = at
        cdef int64_t asked = self.messages_left
        cdef int64_t passed = 0
        cdef int64_t decided, index, messages, begin, end, size
        cdef Py_ssize_t start
        decided, runs = sift(place.filter, piece, sizeof(PieceHead), self.messages_left, self.bytes_left, PyList_GET_SIZE(self.out) > 0)
        for index, messages, begin, end in runs:
            self.leave_out(place, done, at + index)
            done = at + index + messages
            start = PyList_GET_SIZE(self.out)
            self.add_piece(place, at + index, <uint32_t>messages, head.stored_at_ms, <char*>head + begin, <uint32_t>(end - begin))
            size = end - begin
            if place.keys is not None and at + index == place.next_offset:
                size = self.take_by_key(place, start)
            else:
                self.take(place, at + index, done, start)
            passed += messages
            self.bytes_left -= size
            self.delivered_bytes += size
        self.leave_out(place, done, at + decided)
        self.allowance.take(decided, place.filter.cost)
        if decided < head.count and passed < asked:
            self.bytes_left = 0  # as in the twin
        return decided == head.count

    cdef int leave_out(self, Place place, int64_t first, int64_t end) except -1:
        if end > first:
            place.leave_out(first, end, self.next_lease())
            self.dirty.add(place)
            self.counts.passed_over += end - first
        return 0

    cdef int64_t take_by_key(self, Place place, Py_ssize_t start) except -1:
        """The twin's _lease_by_key(), for the pieces in `out` from `start` on."""
        cdef list pieces = self.out[start:]
        cdef bytes piece
        cdef const PieceHead* head
        cdef const uint8_t* record
        cdef const uint8_t* kept         # where the records begin that are in the run and in no piece of its own yet
        cdef int64_t run_first = -1      # of the run that is being gathered
        cdef int64_t offset, first
        cdef int64_t leased = 0
        cdef uint32_t size, i
        del self.out[start:]
        for piece in pieces:
            head = <const PieceHead*>PyBytes_AS_STRING(piece)
            record = <const uint8_t*>head + sizeof(PieceHead)
            kept = record
            first = offset = <int64_t>head.first_offset
            for i in range(head.count):
                memcpy(&size, record, sizeof(size))
                size += sizeof(size)
                if not place.keys.take(offset, number_of(record, size)):
                    leased += self.keep(place, first, offset, head.stored_at_ms, kept, record)
                    if run_first >= 0 or offset > first:
                        self.take(place, run_first if run_first >= 0 else first, offset, start)
                        run_first = -1
                    place.wait(offset)
                    start = PyList_GET_SIZE(self.out)
                    first = offset + 1
                    kept = record + size
                record += size
                offset += 1
            leased += self.keep(place, first, offset, head.stored_at_ms, kept, record)
            if run_first < 0 and offset > first:
                run_first = first
        if run_first >= 0:
            self.take(place, run_first, offset, start)
        self.dirty.add(place)
        return leased

    cdef int64_t keep(self, Place place, int64_t first, int64_t end, int64_t stored_at_ms, const uint8_t* records, const uint8_t* stop) except -1:
        """Make first..end, if it is any, a piece of the answer; returns the size of its records."""
        if end > first:
            self.add_piece(place, first, <uint32_t>(end - first), stored_at_ms, records, <uint32_t>(stop - records))
        return stop - records

    cdef int take(self, Place place, int64_t first, int64_t end, Py_ssize_t start) except -1:
        """Lease first..end, whose pieces lie in `out` from `start` on, and make the pieces say so."""
        cdef int64_t due_ms = self.now_ms + self.invisible_ms
        cdef int64_t count = end - first
        cdef TokenBytes token
        cdef uint32_t attempt
        cdef PieceHead* head
        cdef Py_ssize_t at
        attempt = place.give(first, end, self.next_lease(), due_ms)
        if place.due_at_ms < 0 or place.due_at_ms > due_ms:
            self.clockwork.due(place, due_ms)
        self.dirty.add(place)
        self.receipts.write(&token, place.queue, <uint32_t>count, place.topic_hash, <uint64_t>first, self.lease)
        for at in range(start, PyList_GET_SIZE(self.out)):
            head = <PieceHead*>PyBytes_AS_STRING(self.out[at])
            head.token = token
            head.delta = <uint32_t>(head.first_offset - <uint64_t>first)
            head.attempt = attempt
            if (<const uint8_t*>head)[sizeof(PieceHead) + 4] & HAS_TRAILER and self.requests is not None:
                self.requests.given(self.group.name, (<bytes>self.out[at])[sizeof(PieceHead):])
        self.messages_left -= count
        self.delivered += count
        if attempt > 1:
            self.redelivered += count
        return 0

    cdef int rest(self, Place place) except -1:
        if place.next_offset >= place.end_seen:
            self.store.watch(place.topic_id, place.queue)
        else:
            place.blocked = True
        if place.order and place.open.count:
            place.blocked = True
        return 0
