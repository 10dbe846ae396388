# cython: language_level=3
"""Reading what a pull is given: the half of handout.py that asks the log.

A run is read by `engine.log.read._tail`, its pieces are written once, header and records, as they travel; everything that is not plain
(an older segment, damage, another store) takes the twin's way.
"""
import logging
from collections import OrderedDict

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE

from engine.log.write._append cimport Appender
from engine.log.read._tail cimport ELSEWHERE, NOTHING, SOME, Slice, Tail
from engine.delivery._queue_cursor cimport Place
from engine.env._clock cimport Clock

from engine.errors import CorruptionError, OffsetOutOfRangeError

log = logging.getLogger("engine.delivery.dispatch")

cdef enum:
    FLOOR_KEPT_MS = 1000
    AHEAD_BYTES = 32768          # and the rest of the batch
    AHEAD_BYTES_MAX = 64 << 20   # of all places together; those of the oldest go first


cdef inline Py_ssize_t size_of(list pieces) except -1:
    cdef Py_ssize_t size = 0
    for piece in pieces:
        size += PyBytes_GET_SIZE(piece[3])
    return size


cdef class Ahead:
    """Verified pieces of an older segment, as far as pulls have not taken them. Small pulls would read and verify the same batches again and again."""

    def __cinit__(self, list pieces, int64_t offset, int64_t deleted):
        self.pieces, self.offset, self.deleted = pieces, offset, deleted
        self.size = size_of(pieces)


cdef class Reading:

    def __init__(self, store, clockwork, set dirty, requests, Clock clock not None):
        appender = getattr(store, "appender", None)
        self.store, self.clockwork, self.dirty = store, clockwork, dirty
        self.floors = getattr(store, "floors", None)
        self.tail = Tail(appender, store.log_id) if isinstance(appender, Appender) else None
        self.ahead_of = OrderedDict()
        self.requests, self.clock = requests, clock

    cdef int see(self, Place place) except -1:
        """Look how far the queue goes. What retention took is found when it is read, so the cheap half is enough mostly."""
        cdef int64_t end = -1
        if self.tail is not None:
            end = self.tail.end(place.topic_id, place.queue)
        if end >= 0 and place.next_offset <= end:
            place.end_seen = end
            return 0
        first_offset, end_offset = self.store.bounds(place.topic_id, place.queue)
        place.see(first_offset, end_offset)
        return 0

    cdef int read(self, Place place, int64_t first, int64_t end, int64_t bytes_max, int64_t* given_end, int64_t* size) except -1:
        """Put what can be read of first..end into `out` as pieces without token."""
        cdef Slice found
        cdef int how = ELSEWHERE
        cdef int64_t at = first
        cdef int64_t left = bytes_max
        if self.tail is not None and first >= self.readable_from(place):
            if place.ahead is not None and (<Ahead>place.ahead).offset == first and (<Ahead>place.ahead).deleted == self.deleted():
                return self.read_ahead(place, place.ahead, end, bytes_max, given_end, size)
            while at < end:
                how = self.tail.next(place.topic_id, place.queue, at, end - at, left, at > first, &found)
                if how != SOME:
                    break
                if found.records[4] & HAS_TRAILER and self.is_over(<const char*>found.records, found.size):
                    if at == first:
                        return self.pass_request(place, first)
                    break
                self.add_piece(place, at, found.count, found.stored_at_ms, found.records, found.size)
                at += found.count
                left -= found.size
                if left <= 0:
                    break
        if at > first:
            given_end[0] = at
            size[0] = bytes_max - left
            return FOUND
        return EMPTY if how == NOTHING else self.read_elsewhere(place, first, end, bytes_max, given_end, size)

    cdef int64_t readable_from(self, Place place) except -1:
        """Below it nothing may be read, although it may still be there. Up to a second older than the log's own answer."""
        if self.floors is not None and self.now_ms >= place.readable_until_ms:
            place.readable_from = self.floors.of(place.topic_id, place.queue)
            place.readable_until_ms = self.now_ms + FLOOR_KEPT_MS
        return place.readable_from

    cdef int add_piece(self, Place place, int64_t first, uint32_t count, int64_t stored_at_ms, const void* records, uint32_t size) except -1:
        cdef bytes piece = PyBytes_FromStringAndSize(NULL, sizeof(PieceHead) + size)
        cdef PieceHead* head = <PieceHead*>PyBytes_AS_STRING(piece)
        head.first_offset = <uint64_t>first
        head.queue = place.queue
        head.count = count
        head.stored_at_ms = stored_at_ms
        head.size = size
        head.zero = 0
        memcpy(<char*>head + sizeof(PieceHead), records, size)
        self.out.append(piece)
        return 0

    cdef int read_elsewhere(self, Place place, int64_t first, int64_t end, int64_t bytes_max, int64_t* given_end,
                            int64_t* size) except -1:
        """The twin's way to read, and on beyond what this pull may have."""
        try:
            pieces = self.read_store(place, first, end, bytes_max)
        except OffsetOutOfRangeError as out:
            place.see(out.first_offset, out.end_offset)
            return AGAIN if out.first_offset > first else EMPTY
        except CorruptionError as damage:
            return self.step_over(place, first, end, damage)
        return self.read_ahead(place, Ahead(pieces, first, self.deleted()), end, bytes_max, given_end, size) if pieces else EMPTY

    cdef int64_t deleted(self) except -1:
        """What retention takes is not handed out any more, although it lies here."""
        return self.store.retention.deleted_segments if self.tail is not None else 0

    cdef list read_store(self, Place place, int64_t first, int64_t end, int64_t bytes_max):
        cdef int64_t begun = self.clock.monotonic_ns()
        try:
            if self.tail is None or first < place.next_offset:
                return self.store.read(place.topic_id, place.queue, first, end - first, bytes_max)
            end = max(end, place.end_seen)
            return self.store.read(place.topic_id, place.queue, first, end - first, max(<int64_t>AHEAD_BYTES, bytes_max), whole=True)
        finally:
            self.older_ns += self.clock.monotonic_ns() - begun

    cdef bint read_on(self, Place place, Ahead ahead, int64_t end, int64_t bytes_max) except -1:
        """Read what lies behind; damage there is for the read that begins at it."""
        try:
            ahead.pieces = self.read_store(place, ahead.offset, end, bytes_max)
        except (OffsetOutOfRangeError, CorruptionError):
            ahead.pieces = []
        ahead.index = 0
        if place.ahead is ahead:
            self.ahead_bytes -= ahead.size
        ahead.size = size_of(ahead.pieces)
        if place.ahead is ahead:
            self.ahead_bytes += ahead.size
        return len(ahead.pieces) > 0

    cdef int read_ahead(self, Place place, Ahead ahead, int64_t end, int64_t bytes_max, int64_t* given_end, int64_t* size) except -1:
        """As read(), from what was read before."""
        cdef int64_t first = ahead.offset
        cdef int64_t at = first
        cdef int64_t left = bytes_max
        cdef bytes records
        cdef const char* start
        cdef const char* stop
        cdef const char* record
        cdef uint32_t record_size
        while at < end and left > 0:
            if ahead.index == PyList_GET_SIZE(ahead.pieces) and not self.read_on(place, ahead, end, left):
                break
            _, _, stored_at_ms, records = ahead.pieces[ahead.index]
            start = record = PyBytes_AS_STRING(records) + ahead.at
            stop = PyBytes_AS_STRING(records) + PyBytes_GET_SIZE(records)
            if start[4] & HAS_TRAILER and self.is_over(start, stop - start):
                if at == first:
                    return self.pass_request(place, first)
                break
            given_end[0] = at
            while record < stop and given_end[0] < end:
                memcpy(&record_size, record, sizeof(record_size))
                if record - start + 4 + record_size > left and given_end[0] > first:
                    break
                record += 4 + record_size
                given_end[0] += 1
            if record == start:
                break
            if (record == stop and given_end[0] < end and left > record - start and ahead.index == PyList_GET_SIZE(ahead.pieces) - 1
                    and (ahead.at or ahead.index)):
                # The last piece may end where its batch goes on: read that anew, so that the answer's pieces are whole as the twin's.
                ahead.at = 0
                if not self.read_on(place, ahead, end, left):
                    break
                continue
            self.add_piece(place, at, <uint32_t>(given_end[0] - at), stored_at_ms, start, <uint32_t>(record - start))
            ahead.offset = at = given_end[0]
            left -= record - start
            ahead.at += record - start
            if record == stop:
                ahead.index += 1
                ahead.at = 0
        given_end[0] = at
        size[0] = bytes_max - left
        self.keep_ahead(place, ahead)
        return FOUND if at > first else AGAIN

    cdef int keep_ahead(self, Place place, Ahead ahead) except -1:
        if ahead.index == PyList_GET_SIZE(ahead.pieces):
            self.drop_ahead(place)
        elif place.ahead is not ahead:
            self.drop_ahead(place)
            place.ahead = ahead
            self.ahead_of[place] = None
            self.ahead_bytes += ahead.size
            while self.ahead_bytes > AHEAD_BYTES_MAX and len(self.ahead_of) > 1:
                self.drop_ahead(next(iter(self.ahead_of)))
        return 0

    cdef int drop_ahead(self, Place place) except -1:
        if place.ahead is not None:
            self.ahead_bytes -= (<Ahead>place.ahead).size
            place.ahead = None
            del self.ahead_of[place]
        return 0

    cdef int step_over(self, Place place, int64_t first, int64_t end, damage) except -1:
        """The bytes are gone for everybody; a queue that stops at them would lose the messages behind them, too."""
        cdef int64_t stop
        after = damage.next_offset
        log.error(
            "topic=%s queue=%d offset=%d: cannot be delivered, going on at %s: %s", place.topic_name, place.queue, first, after, damage
        )
        if after is None or after <= first:
            return EMPTY
        stop = min(<int64_t>after, end)
        return self.pass_over(place, first, stop)

    cdef bint is_over(self, const char* record, Py_ssize_t size) except -1:
        return self.requests is not None and self.requests.is_over(record[:size])

    cdef int pass_request(self, Place place, int64_t first) except -1:
        """A request whose time is over; it is alone in its batch."""
        self.requests.expired += 1
        return self.pass_over(place, first, first + 1)

    cdef int pass_over(self, Place place, int64_t first, int64_t end) except -1:
        """Count as done what nobody can be given."""
        self.next_lease()
        place.give(first, end, self.lease, 0)
        place.settle(first, end, self.lease, False)
        self.dirty.add(place)
        return AGAIN

    cdef uint64_t next_lease(self) except 0:
        """The clock is asked once a pull: nothing handed out by it was stored later than that."""
        self.lease = self.lease + 1 if self.lease else self.clockwork.next_lease()
        return self.lease
