# cython: language_level=3
"""Big-endian numbers for the contract's replies, and the wall clock, inlined where they are used."""

from libc.stdint cimport uint32_t, uint64_t


cdef inline void put_be32(unsigned char* p, uint32_t value) noexcept nogil:
    p[0], p[1], p[2], p[3] = (value >> 24) & 255, (value >> 16) & 255, (value >> 8) & 255, value & 255


cdef inline void put_be64(unsigned char* p, uint64_t value) noexcept nogil:
    put_be32(p, <uint32_t>(value >> 32))
    put_be32(p + 4, <uint32_t>value)


cdef extern from "<time.h>" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    int CLOCK_REALTIME


cdef inline uint64_t unix_ms() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return <uint64_t>t.tv_sec * 1000 + t.tv_nsec // 1000000
