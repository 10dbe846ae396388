# cython: language_level=3
"""Reads the records of a range for dispatch. Reference: Dispatcher._read() in dispatch.py.

A range is read by `engine.log.read._tail`. Its pieces are written once, header and records, as they are sent.
Everything else (an older segment, damage, another store) goes through Log.read().
"""
import logging
from collections import OrderedDict

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE

from common.limited_log import LimitedLog
from engine.log.write._append cimport Appender
from engine.log.read._tail cimport ELSEWHERE, NOTHING, SOME, Slice, Tail
from engine.delivery._queue_cursor cimport QueueCursor
from engine.link.constants cimport RECORD_HAS_TRAILER, RECORD_HEAD_SIZE

from engine.errors import CorruptionError, OffsetOutOfRangeError, StoreDamagedError, UnreadableError

limited = LimitedLog(logging.getLogger("engine.delivery.dispatch"))

cdef enum:
    FLOOR_KEPT_MS = 1000
    PREFETCH_BYTES = 32768          # and the rest of the batch
    PREFETCH_BYTES_MAX = 64 << 20   # of all cursors together; the oldest are dropped first


cdef inline Py_ssize_t size_of(list pieces) except -1:
    cdef Py_ssize_t size = 0
    for piece in pieces:
        size += PyBytes_GET_SIZE(piece[3])
    return size


cdef class Prefetch:
    """Verified pieces of an older segment that no pull has got yet.

    Otherwise small pulls would verify a batch again and again.
    """

    def __cinit__(self, list pieces, int64_t offset, int64_t deleted):
        self.pieces, self.offset, self.deleted = pieces, offset, deleted
        self.size = size_of(pieces)


cdef class RecordReader:
    """Base of the native Dispatcher: the way from a range of offsets to pieces in `out`."""

    def __init__(self, store, lease_clock, dict dirty, requests, now_ns):
        self.requests, self.now_ns = requests, now_ns
        appender = getattr(store, "appender", None)
        self.store, self.lease_clock, self.dirty = store, lease_clock, dirty
        self.floors = getattr(store, "start_offsets", None)
        self.tail = Tail(appender, store.log_id) if isinstance(appender, Appender) else None
        self.prefetches = OrderedDict()

    cdef int see(self, QueueCursor cursor) except -1:
        """Look up the queue's end. Reads notice what retention has deleted, so the cheap half is mostly enough."""
        cdef int64_t end = -1
        if self.tail is not None:
            end = self.tail.end(cursor.topic_id, cursor.queue)
        if end >= 0 and cursor.next_offset <= end:
            cursor.end_seen = end
            return 0
        first_offset, end_offset = self.store.bounds(cursor.topic_id, cursor.queue)
        cursor.see(first_offset, end_offset)
        return 0

    cdef int read(self, QueueCursor cursor, int64_t first, int64_t end, int64_t bytes_max, int64_t* given_end,
                  int64_t* size) except -1:
        """Put the readable part of first..end into `out` as pieces without token.

        Bounds: the tail has verified `found.records`, `found.size` bytes of whole records.
        """
        cdef Slice found
        cdef int how = ELSEWHERE
        cdef int64_t at = first
        cdef int64_t left = bytes_max
        if self.tail is not None and first >= self.readable_from(cursor):
            if (cursor.prefetch is not None and (<Prefetch>cursor.prefetch).offset == first
                    and (<Prefetch>cursor.prefetch).deleted == self.deleted()):
                return self.read_prefetched(cursor, cursor.prefetch, end, bytes_max, given_end, size)
            while at < end:
                how = self.tail.next(cursor.topic_id, cursor.queue, at, end - at, left, at > first, &found)
                if how != SOME:
                    break
                if found.records[RECORD_HEAD_SIZE - 1] & RECORD_HAS_TRAILER and self.is_over(<const char*>found.records, found.size, found.stored_at_ms):
                    if at == first:
                        return self.pass_request(cursor, first)
                    break
                self.add_piece(cursor, at, found.count, found.stored_at_ms, found.records, found.size)
                at += found.count
                left -= found.size
                if left <= 0:
                    break
        if at > first:
            given_end[0] = at
            size[0] = bytes_max - left
            return FOUND
        return EMPTY if how == NOTHING else self.read_elsewhere(cursor, first, end, bytes_max, given_end, size)

    cdef int64_t readable_from(self, QueueCursor cursor) except -1:
        """Return the log start offset of the queue. Up to a second older than the log's own answer."""
        if self.floors is not None and self.now_ms >= cursor.readable_until_ms:
            try:
                cursor.readable_from = self.floors.of(cursor.topic_id, cursor.queue)
            except (OSError, StoreDamagedError):
                # The log's own answer also has the queue woken for another try.
                cursor.readable_from = self.store.bounds(cursor.topic_id, cursor.queue)[0]
            cursor.readable_until_ms = self.now_ms + FLOOR_KEPT_MS
        return cursor.readable_from

    cdef int add_piece(self, QueueCursor cursor, int64_t first, uint32_t count, int64_t stored_at_ms, const void* records,
                       uint32_t size) except -1:
        cdef bytes piece = PyBytes_FromStringAndSize(NULL, sizeof(PieceHead) + size)
        cdef PieceHead* head = <PieceHead*>PyBytes_AS_STRING(piece)
        head.first_offset = <uint64_t>first
        head.queue = cursor.queue
        head.count = count
        head.stored_at_ms = stored_at_ms
        head.size = size
        head.zero = 0
        memcpy(<char*>head + sizeof(PieceHead), records, size)
        self.out.append(piece)
        return 0

    cdef int read_elsewhere(self, QueueCursor cursor, int64_t first, int64_t end, int64_t bytes_max, int64_t* given_end,
                            int64_t* size) except -1:
        """Read by Log.read(), and prefetch beyond the bounds of this pull."""
        try:
            pieces = self.read_store(cursor, first, end, bytes_max)
        except OffsetOutOfRangeError as out:
            cursor.see(out.first_offset, out.end_offset)
            return AGAIN if out.first_offset > first else EMPTY
        except CorruptionError as damage:
            return self.step_over(cursor, first, end, damage)
        if not pieces:
            return EMPTY
        return self.read_prefetched(cursor, Prefetch(pieces, first, self.deleted()), end, bytes_max, given_end, size)

    cdef int64_t deleted(self) except -1:
        """Number of segments that retention has deleted: prefetched pieces may be from one of them."""
        return self.store.retention.deleted_segments if self.tail is not None else 0

    cdef list read_store(self, QueueCursor cursor, int64_t first, int64_t end, int64_t bytes_max):
        cdef int64_t begun = self.now_ns()
        try:
            if self.tail is None or first < cursor.next_offset:
                return self.store.read(cursor.topic_id, cursor.queue, first, end - first, bytes_max)
            end = max(end, cursor.end_seen)
            bytes_max = max(<int64_t>PREFETCH_BYTES, bytes_max)
            return self.store.read(cursor.topic_id, cursor.queue, first, end - first, bytes_max, whole=True)
        finally:
            self.older_ns += <int64_t>self.now_ns() - begun

    cdef bint read_on(self, QueueCursor cursor, Prefetch prefetch, int64_t end, int64_t bytes_max) except -1:
        """Read the next pieces; damage and refused reads are left to the read that begins at them."""
        try:
            prefetch.pieces = self.read_store(cursor, prefetch.offset, end, bytes_max)
        except (OffsetOutOfRangeError, CorruptionError, UnreadableError):
            prefetch.pieces = []
        prefetch.index = 0
        if cursor.prefetch is prefetch:
            self.prefetch_bytes -= prefetch.size
        prefetch.size = size_of(prefetch.pieces)
        if cursor.prefetch is prefetch:
            self.prefetch_bytes += prefetch.size
        return len(prefetch.pieces) > 0

    cdef int read_prefetched(self, QueueCursor cursor, Prefetch prefetch, int64_t end, int64_t bytes_max, int64_t* given_end,
                             int64_t* size) except -1:
        """As read(), from prefetched pieces.

        Bounds: a piece holds whole records, which the log has verified; `record` advances by each record's own size up
        to `stop`.
        """
        cdef int64_t first = prefetch.offset
        cdef int64_t at = first
        cdef int64_t left = bytes_max
        cdef bytes records
        cdef const char* start
        cdef const char* stop
        cdef const char* record
        cdef uint32_t record_size
        while at < end and left > 0:
            if prefetch.index == PyList_GET_SIZE(prefetch.pieces) and not self.read_on(cursor, prefetch, end, left):
                break
            _, _, stored_at_ms, records = prefetch.pieces[prefetch.index]
            start = record = PyBytes_AS_STRING(records) + prefetch.at
            stop = PyBytes_AS_STRING(records) + PyBytes_GET_SIZE(records)
            if start[RECORD_HEAD_SIZE - 1] & RECORD_HAS_TRAILER and self.is_over(start, stop - start, stored_at_ms):
                if at == first:
                    return self.pass_request(cursor, first)
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
            if (record == stop and given_end[0] < end and left > record - start
                    and prefetch.index == PyList_GET_SIZE(prefetch.pieces) - 1 and (prefetch.at or prefetch.index)):
                # The last piece may be the first part of its batch: read it again, so that the answer's pieces equal
                # the reference's.
                prefetch.at = 0
                if not self.read_on(cursor, prefetch, end, left):
                    break
                continue
            self.add_piece(cursor, at, <uint32_t>(given_end[0] - at), stored_at_ms, start, <uint32_t>(record - start))
            prefetch.offset = at = given_end[0]
            left -= record - start
            prefetch.at += record - start
            if record == stop:
                prefetch.index += 1
                prefetch.at = 0
        given_end[0] = at
        size[0] = bytes_max - left
        self.keep_prefetch(cursor, prefetch)
        return FOUND if at > first else AGAIN

    cdef int keep_prefetch(self, QueueCursor cursor, Prefetch prefetch) except -1:
        if prefetch.index == PyList_GET_SIZE(prefetch.pieces):
            self.drop_prefetch(cursor)
        elif cursor.prefetch is not prefetch:
            self.drop_prefetch(cursor)
            cursor.prefetch = prefetch
            self.prefetches[cursor] = None
            self.prefetch_bytes += prefetch.size
            while self.prefetch_bytes > PREFETCH_BYTES_MAX and len(self.prefetches) > 1:
                self.drop_prefetch(next(iter(self.prefetches)))
        return 0

    cdef int drop_prefetch(self, QueueCursor cursor) except -1:
        if cursor.prefetch is not None:
            self.prefetch_bytes -= (<Prefetch>cursor.prefetch).size
            cursor.prefetch = None
            del self.prefetches[cursor]
        return 0

    cdef int step_over(self, QueueCursor cursor, int64_t first, int64_t end, damage) except -1:
        """Pass over damage: its messages are lost for every group, and a stopped queue would block those after them."""
        cdef int64_t stop
        after = damage.next_offset
        limited.error(
            "group=%s topic=%s queue=%d offset=%d: cannot be read, continuing at offset %s: %s",
            cursor.group.name, cursor.topic_name, cursor.queue, first, after, damage,
        )
        if after is None or after <= first:
            return EMPTY
        if first == cursor.next_offset:
            end = min(cursor.end_seen, cursor.first_early())  # none is in flight: one step, however many they are
        stop = min(<int64_t>after, end)
        return self.pass_over(cursor, first, stop)

    cdef bint is_over(self, const char* record, Py_ssize_t size, int64_t stored_at_ms) except -1:
        return self.requests is not None and self.requests.is_over(record[:size], stored_at_ms)

    cdef int pass_request(self, QueueCursor cursor, int64_t first) except -1:
        """Pass over an expired request, which is alone in its batch."""
        self.requests.expired += 1
        return self.pass_over(cursor, first, first + 1)

    cdef int pass_over(self, QueueCursor cursor, int64_t first, int64_t end) except -1:
        """Count as done messages that cannot be delivered."""
        self.next_lease()
        cursor.lease(first, end, self.lease, 0)
        cursor.settle(first, end, self.lease, False)
        self.dirty[cursor] = None
        return AGAIN

    cdef uint64_t next_lease(self) except 0:
        """Return a new lease number. One clock read per pull is enough: all its messages were stored before."""
        self.lease = self.lease + 1 if self.lease else self.lease_clock.next_lease()
        return self.lease
