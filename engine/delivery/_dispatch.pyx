# cython: language_level=3
"""Dispatch: fills a pull without a Python object per range. Reference: dispatch.py, which documents the steps.

A pull of single messages from many queues has one range per message, so the cost of a range is the cost of a message.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.list cimport PyList_GET_SIZE

from engine.delivery._key_order cimport number_of
from engine.delivery._pull cimport Pull
from engine.delivery._queue_cursor cimport QueueCursor
from engine.delivery._record_reader cimport AGAIN, EMPTY, PieceHead, RecordReader
from engine.delivery._receipt cimport Receipts, TokenBytes
from engine.link.constants cimport RECORD_HAS_TRAILER, RECORD_HEAD_SIZE

from engine.delivery.filter_budget import FILTER_READ_MESSAGES as READ_MESSAGES
from engine.delivery.filter_budget import FilterBudget
from engine.delivery import dispatch as reference
from engine.delivery.key_recovery import sort_open
from engine.delivery.reply_window import SMALL_BYTES
from engine.delivery.shared_filters import SharedFilters
from engine.errors import UnreadableError
from engine.filter.native import select


cdef int64_t FILTER_READ_MESSAGES = READ_MESSAGES
cdef int64_t SMALL = SMALL_BYTES
cdef Py_ssize_t TOO_LARGE_MAX = reference.TOO_LARGE_MAX


cdef inline bint next_range(QueueCursor cursor, int64_t messages_max, int64_t* first, int64_t* end) except -1:
    """plan() of the cursor; False when nothing may be dispatched."""
    first[0], end[0] = cursor.plan(messages_max)
    return end[0] > first[0]


cdef class Dispatcher(RecordReader):
    """Native form of Dispatcher; see the reference for each method."""

    cdef object counts
    cdef int64_t quantum_bytes, older_ns_max
    cdef object group
    cdef readonly dict later
    cdef readonly object shared
    cdef object budget
    # Of the pull in progress; meaningless between two calls of fill().
    cdef int64_t wanted, messages_left, bytes_left, first_bytes_max, invisible_ms
    cdef bint is_short
    cdef dict too_large           # cursor -> (next offset, size): a first message that did not fit lately
    cdef Receipts receipts
    cdef int64_t delivered, redelivered, delivered_bytes
    cdef Py_ssize_t leased       # pieces in `out` that have their lease

    def __init__(self, store, settings, lease_clock, dict dirty, counts, requests, now_ns):
        RecordReader.__init__(self, store, lease_clock, dirty, requests, now_ns)
        self.counts, self.quantum_bytes, self.older_ns_max = counts, settings.quantum_bytes, settings.older_us * 1000
        self.later, self.budget = {}, FilterBudget(settings.filter_tests_max)
        self.shared = SharedFilters(settings.shared_filters_min)
        self.too_large = {}

    def fill(self, Pull pull not None, group, int64_t now_ms):
        """Fill the pull from its subscription; see the reference."""
        ring = pull.subscription.ring
        if not ring:
            return
        self.now_ms = now_ms
        self.wanted = pull.messages_left
        self.messages_left, self.bytes_left, self.invisible_ms = pull.messages_left, pull.bytes_left, pull.invisible_ms
        self.first_bytes_max, self.is_short = pull.first_bytes_max, False
        self.group, self.receipts, self.out = group, group.receipts, pull.pieces
        self.delivered = self.redelivered = self.delivered_bytes = 0
        self.lease = self.older_ns = 0
        self.leased = PyList_GET_SIZE(self.out)
        try:
            self.turn(ring)
        finally:
            pull.messages_left, pull.bytes_left = self.messages_left, self.bytes_left
            pull.piece_count = PyList_GET_SIZE(self.out)
            if self.is_short:
                pull.is_short = True
            self.group = self.receipts = self.out = None
            if self.lease:
                self.lease_clock.last = self.lease
                self.count()

    cdef int count(self) except -1:
        self.counts.deliveries += self.delivered
        self.counts.delivered_bytes += self.delivered_bytes
        if self.redelivered:
            self.counts.redeliveries += self.redelivered
        return 0

    cdef int turn(self, ring) except -1:
        cdef QueueCursor cursor
        cdef int64_t given
        move_to_end = ring.move_to_end
        while ring and self.messages_left > 0 and self.bytes_left > 0:
            cursor = next(iter(ring))
            cursor.credit = min(cursor.credit + self.quantum_bytes, self.quantum_bytes)
            given = self.delivered
            if cursor.credit <= 0 or self.try_queue(cursor):
                if self.messages_left > 0 or self.delivered > given:
                    move_to_end(cursor)
            else:
                del ring[cursor]
                cursor.credit = 0
            if self.older_ns > self.older_ns_max and self.out:
                break
        return 0

    cdef bint try_queue(self, QueueCursor cursor) except -1:
        """Dispatch from one cursor. A queue that the disk cannot read now rests; what was leased before stays."""
        try:
            return self.dispatch_queue(cursor)
        except (OSError, UnreadableError):
            del self.out[self.leased:]
            self.store.watch(cursor.topic_id, cursor.queue)
            return False

    cdef bint dispatch_queue(self, QueueCursor cursor) except -1:
        """Dispatch from one cursor until its turn is over or the pull is full; False when the cursor is exhausted."""
        cdef bint seen = False
        cdef int64_t first = 0
        cdef int64_t end = 0
        cdef int64_t given_end = 0
        cdef int64_t size = 0
        cdef Py_ssize_t start
        cdef int how
        if not cursor.is_sorted and not sort_open(cursor, self.store):
            self.store.watch(cursor.topic_id, cursor.queue)
            return False
        if cursor.filter is not None:
            return self.dispatch_filtered(cursor)
        while self.messages_left > 0 and self.bytes_left > 0 and cursor.credit > 0:
            if not next_range(cursor, self.messages_left, &first, &end):
                if seen:
                    self.rest(cursor)
                    return False
                self.see(cursor)
                seen = True
                continue
            if first != cursor.next_offset and not self.bound_again(cursor, first, &end):
                break
            start = PyList_GET_SIZE(self.out)
            if self.first_bytes_max <= SMALL and not start and self.is_too_large(cursor, first):
                self.is_short = True
                self.bytes_left = 0
                break
            how = self.read(cursor, first, end, min(cursor.credit, self.bytes_left), &given_end, &size)
            if how == AGAIN:
                continue
            if how == EMPTY:
                self.store.watch(cursor.topic_id, cursor.queue)
                return False
            if size > (self.bytes_left if start else self.first_bytes_max):
                if start == 0:
                    self.is_short = True
                    self.note_too_large(cursor, first, size)
                del self.out[start:]
                self.bytes_left = 0
                break
            if cursor.keys is not None and first == cursor.next_offset:
                size = self.lease_by_key(cursor, start)
            else:
                self.lease_range(cursor, first, given_end, start)
            self.bytes_left -= size
            cursor.credit -= size
            self.delivered_bytes += size
            if given_end < end:
                break  # the turn's bytes are used up; continuing would make one lease per message
        return True

    cdef bint bound_again(self, QueueCursor cursor, int64_t first, int64_t* end) except -1:
        """Shorten first..end, which failed before, to what may join the pull; False: the pull ends here."""
        cdef int64_t room = cursor.pull_max_at(first, self.wanted) - self.delivered
        if room <= 0:
            self.messages_left = 0
            return False
        end[0] = min(end[0], first + room)
        return True

    cdef bint is_too_large(self, QueueCursor cursor, int64_t first) except -1:
        """Whether the message at `first` is known not to fit. Pulls without room would read it again and again."""
        found = self.too_large.get(cursor)
        return found is not None and found[0] == first and found[1] > self.first_bytes_max

    cdef int note_too_large(self, QueueCursor cursor, int64_t first, int64_t size) except -1:
        if len(self.too_large) >= TOO_LARGE_MAX:
            self.too_large.clear()
        self.too_large[cursor] = first, size
        return 0

    cdef bint dispatch_filtered(self, QueueCursor cursor) except -1:
        """As dispatch_queue(), for a group with a filter."""
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
        while self.messages_left > 0 and self.bytes_left > 0 and cursor.credit > 0:
            if not self.budget.is_left(self.now_ms):
                self.later[cursor] = None
                return False
            if not next_range(cursor, FILTER_READ_MESSAGES, &first, &end):
                if seen:
                    self.rest(cursor)
                    return False
                self.see(cursor)
                seen = True
                continue
            fresh = first == cursor.next_offset
            if not fresh and not self.bound_again(cursor, first, &end):
                break
            if fresh:
                begin, end = self.shared.narrow(cursor, first, end)
                self.leave_out(cursor, first, begin)
                first = begin
                self.budget.spend(1, 0)
                if begin == end:
                    continue
            start = PyList_GET_SIZE(self.out)
            how = self.read(cursor, first, end, cursor.credit, &given_end, &size)
            if how == AGAIN:
                continue
            if how == EMPTY:
                self.store.watch(cursor.topic_id, cursor.queue)
                return False
            cursor.credit -= size
            pieces = self.out[start:]
            del self.out[start:]
            for piece in pieces:
                if fresh and self.learn(cursor, piece):
                    self.budget.spend((<PieceHead*>PyBytes_AS_STRING(piece)).count, 0)
                if not self.select(cursor, piece):
                    return True
        return True

    cdef bint learn(self, QueueCursor cursor, bytes piece) except -1:
        return self.shared.learn(cursor, (<PieceHead*>PyBytes_AS_STRING(piece)).first_offset, piece, sizeof(PieceHead))

    cdef bint select(self, QueueCursor cursor, bytes piece) except -1:
        """Lease what the filter selects of a piece that has no token yet."""
        cdef PieceHead* head = <PieceHead*>PyBytes_AS_STRING(piece)
        cdef int64_t at = <int64_t>head.first_offset
        cdef int64_t done = at
        cdef int64_t asked = self.messages_left
        cdef int64_t selected = 0
        cdef int64_t decided, index, messages, begin, end, size
        cdef Py_ssize_t start
        cdef int64_t bytes_max = self.bytes_left
        cdef bint is_bound
        start = PyList_GET_SIZE(self.out)
        is_bound = start > 0 or self.first_bytes_max < <int64_t>head.size
        if is_bound and not start:
            bytes_max = max(self.bytes_left, self.first_bytes_max)
        decided, ranges = select(cursor.filter, piece, sizeof(PieceHead), self.messages_left, bytes_max, is_bound)
        for index, messages, begin, end in ranges:
            self.leave_out(cursor, done, at + index)
            done = at + index + messages
            start = PyList_GET_SIZE(self.out)
            self.add_piece(cursor, at + index, <uint32_t>messages, head.stored_at_ms, <char*>head + begin, <uint32_t>(end - begin))
            size = end - begin
            if cursor.keys is not None and at + index == cursor.next_offset:
                size = self.lease_by_key(cursor, start)
            else:
                self.lease_range(cursor, at + index, done, start)
            selected += messages
            self.bytes_left -= size
            self.delivered_bytes += size
        self.leave_out(cursor, done, at + decided)
        self.budget.spend(decided, cursor.filter.cost)
        if decided < head.count and selected < asked:
            self.is_short = PyList_GET_SIZE(self.out) == 0
            self.bytes_left = 0  # the next one does not fit
        return decided == head.count

    cdef int leave_out(self, QueueCursor cursor, int64_t first, int64_t end) except -1:
        if end > first:
            cursor.leave_out(first, end, self.next_lease())
            self.dirty[cursor] = None
            self.counts.passed_over += end - first
        return 0

    cdef int64_t lease_by_key(self, QueueCursor cursor, Py_ssize_t start) except -1:
        """Lease the messages whose turn it is, of the pieces in `out` from `start` on; the others wait.

        Returns the leased bytes.

        Bounds: a piece holds `head.count` whole records, which the log has verified; `record` advances by each record's
        own size.
        """
        cdef list pieces = self.out[start:]
        cdef bytes piece
        cdef const PieceHead* head
        cdef const uint8_t* record
        cdef const uint8_t* kept         # start of the records that are in the range but in no new piece yet
        cdef int64_t range_first = -1      # start of the range that grows
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
                if not (
                    cursor.keys.admit(offset, number_of(record, size)) if cursor.keys.moves is None
                    else cursor.keys.admit_moving(offset, record[:size])
                ):
                    leased += self.keep(cursor, first, offset, head.stored_at_ms, kept, record)
                    if range_first >= 0 or offset > first:
                        self.lease_range(cursor, range_first if range_first >= 0 else first, offset, start)
                        range_first = -1
                    cursor.wait(offset)
                    start = PyList_GET_SIZE(self.out)
                    first = offset + 1
                    kept = record + size
                record += size
                offset += 1
            leased += self.keep(cursor, first, offset, head.stored_at_ms, kept, record)
            if range_first < 0 and offset > first:
                range_first = first
        if range_first >= 0:
            self.lease_range(cursor, range_first, offset, start)
        self.dirty[cursor] = None
        return leased

    cdef int64_t keep(self, QueueCursor cursor, int64_t first, int64_t end, int64_t stored_at_ms, const uint8_t* records,
                      const uint8_t* stop) except -1:
        """Make first..end a piece of the answer unless it is empty; returns the size of its records."""
        if end > first:
            self.add_piece(cursor, first, <uint32_t>(end - first), stored_at_ms, records, <uint32_t>(stop - records))
        return stop - records

    cdef int lease_range(self, QueueCursor cursor, int64_t first, int64_t end, Py_ssize_t start) except -1:
        """Lease first..end and write the lease into its pieces, which lie in `out` from `start` on."""
        cdef int64_t due_ms = self.now_ms + self.invisible_ms
        cdef int64_t count = end - first
        cdef TokenBytes token
        cdef uint32_t attempt
        cdef PieceHead* head
        cdef Py_ssize_t at
        attempt = cursor.lease(first, end, self.next_lease(), due_ms)
        if cursor.due_ms < 0 or cursor.due_ms > due_ms:
            self.lease_clock.due(cursor, due_ms)
        self.dirty[cursor] = None
        self.receipts.write(&token, cursor.queue, <uint32_t>count, cursor.topic_hash, <uint64_t>first, self.lease)
        for at in range(start, PyList_GET_SIZE(self.out)):
            head = <PieceHead*>PyBytes_AS_STRING(self.out[at])
            head.token = token
            head.delta = <uint32_t>(head.first_offset - <uint64_t>first)
            head.attempt = attempt
            if (<const uint8_t*>head)[sizeof(PieceHead) + RECORD_HEAD_SIZE - 1] & RECORD_HAS_TRAILER and self.requests is not None:
                self.requests.given(self.group.name, (<bytes>self.out[at])[sizeof(PieceHead):])
        self.leased = PyList_GET_SIZE(self.out)
        self.messages_left -= count
        self.delivered += count
        if attempt > 1:
            self.redelivered += count
            self.messages_left = min(self.messages_left, cursor.pull_max(attempt, self.wanted) - self.delivered)
        return 0

    cdef int rest(self, QueueCursor cursor) except -1:
        if cursor.next_offset >= cursor.end_seen:
            self.store.watch(cursor.topic_id, cursor.queue)
        else:
            cursor.blocked = True
        if cursor.order and cursor.in_flight.count:
            cursor.blocked = True
        return 0
