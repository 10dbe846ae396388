# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.delivery._key_order cimport KeyOrder
from engine.delivery._in_flight cimport InFlightRanges


cdef class QueueCursor:
    cdef readonly str topic_name
    cdef readonly uint32_t topic_id
    cdef readonly uint64_t topic_hash
    cdef readonly uint32_t queue
    cdef readonly object settings
    cdef readonly InFlightRanges in_flight
    cdef readonly object early
    cdef public bytes key
    cdef public object group
    cdef public object filter
    cdef readonly bint is_dead_letters
    cdef public int64_t next_offset
    cdef public int64_t end_seen
    cdef public uint64_t floor
    cdef public int64_t credit
    cdef public bint blocked
    cdef public object tick
    cdef public list subscriptions
    cdef int64_t due_at_ms       # NO_DUE when no lease waits for its end
    cdef int64_t readable_from   # a topic's own retention lets nothing below be read; asked for again after `readable_until_ms`
    cdef int64_t readable_until_ms
    cdef object prefetch            # see _record_reader.Prefetch
    cdef int64_t in_flight_max
    cdef int64_t ranges_max
    cdef list early_firsts
    cdef readonly int order
    cdef readonly KeyOrder keys
    cdef public bint is_sorted
    cdef public int64_t sorted_until
    cdef uint32_t stop_at
    cdef int64_t waiting_max

    cdef int forget_keys(self) except -1
    cdef int done(self, int64_t first, int64_t end) except -1
    cdef int done_one(self, int64_t offset) except -1
    cdef int wait(self, int64_t offset) except -1

    cdef bint next_run(self, int64_t messages_max, int64_t* first, int64_t* end) except -1
    cdef uint32_t give(self, int64_t first, int64_t end, uint64_t lease, int64_t due_ms) except? 0
    cdef int leave_out(self, int64_t first, int64_t end, uint64_t lease) except -1
    cpdef bint settle(self, int64_t first, int64_t end, uint64_t lease, bint foreign) except -1
