# cython: language_level=3
"""C types for durations.py, which is compiled as `_durations`."""
cimport cython
from libc.stdint cimport int64_t

from engine.env._clock cimport NodeClock as Clock

# Constants of the reference, as C values.
cdef int64_t FIRST_NS, BOUNDS


cdef class Durations:
    cdef readonly list counts
    cdef readonly int64_t total_ns

    cpdef since(self, Clock clock, int64_t began_ns, int64_t count)

    @cython.locals(bucket=int64_t, bound_ns=int64_t)
    cpdef add(self, int64_t duration_ns, int64_t count)
