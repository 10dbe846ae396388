# cython: language_level=3
"""The machine's clocks for native callers. Reference: clock.py.

A native caller pays one call through the class's table, and then the kernel's vDSO. Only a Python subclass, such as a
simulated clock, has its overrides looked up.
"""
from libc.stdint cimport int64_t

cdef extern from "<time.h>" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    int CLOCK_REALTIME
    int CLOCK_MONOTONIC


cdef class NodeClock:
    """Wall time and monotonic time of the machine."""

    cpdef int64_t wall_ms(self) except? -1:
        """Unix time in milliseconds. It may step back."""
        cdef timespec t
        clock_gettime(CLOCK_REALTIME, &t)
        return <int64_t>t.tv_sec * 1000 + t.tv_nsec // 1000000

    cpdef int64_t monotonic_ns(self) except? -1:
        """Nanoseconds since an arbitrary start. It never steps back."""
        cdef timespec t
        clock_gettime(CLOCK_MONOTONIC, &t)
        return <int64_t>t.tv_sec * 1000000000 + t.tv_nsec

    cpdef int64_t monotonic_ms(self) except? -1:
        """The same in milliseconds: the clock of all deadlines."""
        return self.monotonic_ns() // 1000000
