# cython: language_level=3
from libc.stdint cimport int64_t, uint64_t

from engine.delivery._range_data cimport RangeData


cdef bytes encode_ranges(const RangeData* ranges, Py_ssize_t count, uint64_t floor, int64_t first, int64_t next_offset,
                         int64_t now_ms, int64_t time_ms, int64_t lead_ms)
