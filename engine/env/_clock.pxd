# cython: language_level=3
from libc.stdint cimport int64_t


cdef class NodeClock:
    cpdef int64_t wall_ms(self) except? -1
    cpdef int64_t monotonic_ns(self) except? -1
    cpdef int64_t monotonic_ms(self) except? -1
