# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.delivery._range_array cimport RangeArray
from engine.delivery._range_data cimport RangeData


cdef class InFlightRanges(RangeArray):
    cdef bint is_held(self, Py_ssize_t at, int64_t first, uint64_t lease, bint foreign) noexcept
    cdef object give_to(self, Py_ssize_t at, uint64_t claimer)
    cdef int wait(self, int64_t offset) except -1
    cdef bint all_ready(self) noexcept
    cdef (int64_t, int64_t) next_spent(self, uint32_t attempts_max, int64_t messages_max) noexcept
    cdef (int64_t, int64_t) next_ready(self, int64_t messages_max) except *
    cpdef bint settle(self, int64_t first, int64_t end, uint64_t lease, bint foreign) except -1
    cdef uint32_t lease_again(self, int64_t first, int64_t end, uint64_t lease, int64_t due_ms) except? 0
    cdef bytes encoded_progress(self, uint64_t floor, int64_t next_offset, int64_t now_ms, int64_t time_ms,
                                int64_t lead_ms, int64_t young_ms)
    cdef bint is_certain(self, int64_t first, int64_t end, uint64_t lease) noexcept

    cdef inline uint32_t attempt_at(self, int64_t first) noexcept:
        return self.slots[self.start + self.before(first)].attempt

    cdef inline int64_t first_offset(self, int64_t otherwise) noexcept:
        return self.slots[self.start].first if self.count else otherwise
