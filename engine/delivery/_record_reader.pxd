# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.log.read._tail cimport Tail
from engine.delivery._queue_cursor cimport QueueCursor
from engine.delivery._receipt cimport TokenBytes


cdef packed struct PieceHead:
    TokenBytes token
    uint64_t first_offset
    uint32_t delta
    uint32_t queue
    uint32_t count
    uint32_t attempt
    int64_t stored_at_ms
    uint32_t size
    uint32_t zero


cdef enum:
    FOUND = 0
    EMPTY = 1                    # nothing can be read now
    AGAIN = 2                    # damage was passed over, plan again


cdef class Prefetch:
    cdef list pieces
    cdef Py_ssize_t index        # of the next piece
    cdef Py_ssize_t at           # of the next record in its bytes
    cdef int64_t offset          # of the next record
    cdef Py_ssize_t size         # of all pieces
    cdef int64_t deleted         # number of segments that retention had deleted at the time of the read


cdef class RecordReader:
    cdef object store, lease_clock
    cdef object prefetches         # an ordered dict: the cursors that have a Prefetch, oldest first
    cdef Py_ssize_t prefetch_bytes  # of all prefetched pieces
    cdef dict dirty
    cdef object floors           # of the log: start offsets by the topics' own retention
    cdef readonly object requests  # judges requests, or None
    cdef object now_ns           # monotonic clock in nanoseconds
    cdef Tail tail               # None for another store than the native log
    # Of the pull in progress.
    cdef int64_t now_ms
    cdef list out
    cdef uint64_t lease          # the last one of this pull; 0: none yet
    cdef int64_t older_ns        # spent on reads of older segments

    cdef int see(self, QueueCursor cursor) except -1
    cdef int read(self, QueueCursor cursor, int64_t first, int64_t end, int64_t bytes_max, int64_t* given_end,
                  int64_t* size) except -1
    cdef int add_piece(self, QueueCursor cursor, int64_t first, uint32_t count, int64_t stored_at_ms, const void* records,
                       uint32_t size) except -1
    cdef uint64_t next_lease(self) except 0
    cdef int64_t readable_from(self, QueueCursor cursor) except -1
    cdef int read_elsewhere(self, QueueCursor cursor, int64_t first, int64_t end, int64_t bytes_max, int64_t* given_end,
                            int64_t* size) except -1
    cdef int read_prefetched(self, QueueCursor cursor, Prefetch prefetch, int64_t end, int64_t bytes_max, int64_t* given_end,
                             int64_t* size) except -1
    cdef int64_t deleted(self) except -1
    cdef list read_store(self, QueueCursor cursor, int64_t first, int64_t end, int64_t bytes_max)
    cdef int drop_prefetch(self, QueueCursor cursor) except -1
    cdef bint read_on(self, QueueCursor cursor, Prefetch prefetch, int64_t end, int64_t bytes_max) except -1
    cdef int keep_prefetch(self, QueueCursor cursor, Prefetch prefetch) except -1
    cdef int step_over(self, QueueCursor cursor, int64_t first, int64_t end, damage) except -1
    cdef bint is_over(self, const char* record, Py_ssize_t size, int64_t stored_at_ms) except -1
    cdef int pass_request(self, QueueCursor cursor, int64_t first) except -1
    cdef int pass_over(self, QueueCursor cursor, int64_t first, int64_t end) except -1
