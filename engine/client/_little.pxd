# cython: language_level=3
"""Little-endian numbers of the link, inlined where they are used; this machine's order, as everywhere in ours."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy


cdef inline void put32(unsigned char* p, uint32_t value) noexcept nogil:
    memcpy(p, &value, 4)


cdef inline void put64(unsigned char* p, uint64_t value) noexcept nogil:
    memcpy(p, &value, 8)


cdef inline uint32_t get32(const unsigned char* p) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, p, 4)
    return value
