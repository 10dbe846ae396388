# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.delivery._progress_encoder cimport Numbers
from engine.delivery._range_data cimport RangeData


cdef class RangeArray:
    cdef RangeData* slots           # owned; the ranges are slots[start .. start + count]
    cdef Py_ssize_t start
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef readonly int64_t messages
    cdef readonly Py_ssize_t withheld       # ranges
    cdef readonly int64_t withheld_messages
    cdef readonly uint32_t attempt_top
    cdef list ready_firsts       # heap; None before the first ready range

    cdef Py_ssize_t before(self, int64_t offset) noexcept
    cdef int open_gap(self, Py_ssize_t at) except -1
    cdef void delete(self, Py_ssize_t start, Py_ssize_t stop) noexcept
    cdef int insert(self, Py_ssize_t at, RangeData range_) except -1
    cdef void withhold(self, RangeData* range_, bint withheld) noexcept
    cdef Py_ssize_t join(self, Py_ssize_t at) noexcept
    cdef int push_ready(self, int64_t first) except -1
    cdef Py_ssize_t split(self, Py_ssize_t at, int64_t first, int64_t end) except -1
    cdef int add(self, int64_t first, int64_t end, uint64_t lease, uint32_t attempt, int64_t due_ms, bint ready) except -1
    cpdef tuple load(self, bytes value, int64_t base_ms)
    cdef tuple load_value(self, Numbers numbers, int64_t base_ms)
    cdef int restore(self, int64_t first, int64_t end, uint32_t attempt, int64_t due_ms, uint64_t oldest_ms, uint64_t newest_ms,
                     bint withheld) except -1
