# cython: language_level=3
"""The wall clock, inlined where it is used."""

from libc.stdint cimport uint64_t


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
