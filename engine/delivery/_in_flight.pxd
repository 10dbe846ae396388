# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.delivery._range_data cimport RangeData


cdef class InFlightRanges:
    cdef RangeData* slots           # owned; the ranges are room[start .. start + count]
    cdef Py_ssize_t start
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef readonly int64_t messages
    cdef readonly uint32_t attempt_top
    cdef list ready_firsts       # heap; None before the first ready range

    cdef Py_ssize_t before(self, int64_t offset) noexcept
    cdef int open_gap(self, Py_ssize_t at) except -1
    cdef void delete(self, Py_ssize_t start, Py_ssize_t stop) noexcept
    cdef int insert(self, Py_ssize_t at, RangeData range_) except -1
    cdef bint is_held(self, Py_ssize_t at, int64_t first, uint64_t lease, bint foreign) noexcept
    cdef object give_to(self, Py_ssize_t at, uint64_t claimer)
    cdef int push_ready(self, int64_t first) except -1
    cdef Py_ssize_t split(self, Py_ssize_t at, int64_t first, int64_t end) except -1
    cdef int add(self, int64_t first, int64_t end, uint64_t lease, uint32_t attempt, int64_t due_ms, bint ready) except -1
    cdef int wait(self, int64_t offset) except -1
    cdef bint all_ready(self) noexcept
    cdef (int64_t, int64_t) next_spent(self, uint32_t attempts_max, int64_t messages_max) noexcept
    cdef (int64_t, int64_t) next_ready(self, int64_t messages_max) except *
    cpdef bint settle(self, int64_t first, int64_t end, uint64_t lease, bint foreign) except -1
    cdef uint32_t lease_again(self, int64_t first, int64_t end, uint64_t lease, int64_t due_ms) except? 0
    cdef bytes encoded_progress(self, uint64_t floor, int64_t next_offset)

    cdef inline int64_t first_offset(self, int64_t otherwise) noexcept:
        return self.slots[self.start].first if self.count else otherwise
