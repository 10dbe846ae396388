# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t


cdef enum:
    AREA_BYTES = 256 << 10            # as in mapped.py
    AREA_HEAD = 24


cdef class AreaMap:
    # Invariant: while `start` is not NULL, it begins `count` areas of AREA_BYTES each, mapped from the file.
    cdef unsigned char* start
    cdef readonly uint32_t count
    cdef readonly bint is_broken      # a store has failed: no area is given any more
    cdef list free                    # numbers of areas; the one that was freed last is taken first
    cdef uint64_t sequence            # of the use that began last
    cdef bint put(self, uint32_t area, size_t at, const unsigned char* data, size_t size) noexcept
