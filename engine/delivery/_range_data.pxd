# cython: language_level=3
"""Range in flight as a C struct; fields as in in_flight.py."""
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t


cdef struct RangeData:
    int64_t first
    int64_t end
    uint64_t lease
    uint64_t first_lease
    int64_t due_ms
    uint32_t attempt
    bint ready


cdef inline bint is_waiting(const RangeData* range_) noexcept:
    return not range_.ready and range_.lease == 0 and range_.due_ms == INT64_MAX
