# cython: language_level=3
"""C types for queue_cursor.py, which is compiled as `_queue_cursor`."""
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.delivery._in_flight cimport InFlightRanges as Ranges
from engine.delivery._key_order cimport KeyOrder as Keys


cdef class QueueCursor:
    cdef readonly str topic_name
    cdef readonly uint32_t topic_id
    cdef readonly uint64_t topic_hash
    cdef readonly uint32_t queue
    cdef readonly Ranges in_flight
    cdef readonly object early
    cdef public bytes key
    cdef public object group
    cdef public object filter
    cdef readonly bint is_dead_letters
    cdef public int64_t next_offset
    cdef public int64_t end_seen
    cdef public uint64_t floor
    cdef public int64_t credit
    cdef public object changed
    cdef public bint blocked
    cdef public object tick
    cdef public list subscriptions
    cdef public int64_t due_ms
    cdef int64_t readable_from       # log start offset by the topic's own retention, valid until `readable_until_ms`
    cdef int64_t readable_until_ms
    cdef object prefetch             # a _record_reader.Prefetch
    cdef int64_t in_flight_max
    cdef int64_t ranges_max
    cdef int64_t waiting_max
    cdef int64_t withheld_max
    cdef public int64_t withheld_ranges_max
    cdef list early_firsts
    cdef readonly int order
    cdef bint by_key, one_range
    cdef readonly Keys keys
    cdef readonly object moves
    cdef object new_key_order
    cdef public bint is_sorted
    cdef public int64_t sorted_until
    cdef uint32_t alone_at, stop_at

    @cython.locals(offset=int64_t)
    cpdef see(self, int64_t first_offset, int64_t end_offset)

    @cython.locals(ranges=int64_t, withheld=int64_t, room=int64_t)
    cdef int64_t room(self) except? -1

    @cython.locals(planned=(int64_t, int64_t), room=int64_t, end=int64_t)
    cdef (int64_t, int64_t) plan(self, int64_t messages_max) except *

    cdef int64_t pull_max(self, uint32_t attempt, int64_t wanted) except? -1
    cdef inline int64_t pull_max_at(self, int64_t first, int64_t wanted) except? -1
    cdef inline int64_t first_early(self) except? -1
    cdef int note_change(self) except -1
    cdef uint32_t lease(self, int64_t first, int64_t end, uint64_t lease, int64_t due_ms) except? 0
    cdef int leave_out(self, int64_t first, int64_t end, uint64_t lease) except -1
    cdef int wait(self, int64_t offset) except -1

    @cython.locals(whole=bint, start=int64_t, stop=int64_t, offset=int64_t)
    cpdef bint settle(self, int64_t first, int64_t end, uint64_t lease, bint foreign) except -1

    cpdef int64_t hold(
        self, int64_t first, int64_t end, uint64_t lease, bint foreign, int64_t due_ms, int64_t now_ms, bint withheld
    ) except -1
    cpdef int64_t release(self, int64_t first, int64_t end, uint64_t lease, bint foreign) except -1
    cpdef bint is_certain(self, int64_t first, int64_t end, uint64_t lease) except -1
    cpdef list claim(self, int64_t first, int64_t end, uint64_t lease, bint foreign, uint32_t attempt_min, uint64_t claimer)

    @cython.locals(stop=int64_t)
    cpdef pass_over(self, int64_t end)

    @cython.locals(order=int)
    cpdef follow(self, policy)

    cdef int forget_keys(self) except -1
    cpdef set_moves(self, moves)

    @cython.locals(following=int64_t)
    cpdef bint end_hold(self, int64_t offset) except -1

    @cython.locals(following=int64_t)
    cdef int finish(self, int64_t offset) except -1

    cpdef move(self, int64_t offset, uint64_t floor)
    cpdef progress(self, int64_t now_ms, int64_t time_ms, int64_t lead_ms, int64_t young_ms)
    cpdef bytes encoded_progress(self, int64_t now_ms, int64_t time_ms, int64_t lead_ms, int64_t young_ms)
    cpdef uint64_t resume(self, bytes stored, int64_t base_ms) except? 0
