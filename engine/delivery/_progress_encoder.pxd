# cython: language_level=3
from libc.stdint cimport int64_t, uint64_t

from engine.delivery._range_data cimport RangeData


cdef class Numbers:
    cdef bytes value
    cdef const unsigned char* p
    cdef Py_ssize_t at, size

    cdef int64_t take(self) except -1
    cdef int64_t take_zigzag(self) except? -1


cdef int64_t unzigzag(int64_t number) noexcept


cdef bytes encode_ranges(const RangeData* ranges, Py_ssize_t count, uint64_t floor, int64_t first, int64_t next_offset,
                         int64_t now_ms, int64_t time_ms, int64_t lead_ms, int64_t young_ms)
