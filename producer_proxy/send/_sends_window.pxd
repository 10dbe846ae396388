# cython: language_level=3
"""C types for sends_window.py, which is compiled as `_sends_window`."""
from libc.stdint cimport int64_t


cdef class TopicSends:
    cdef readonly int64_t stored, failed
    cdef list _samples

    cpdef add(self, int64_t stored, int64_t failed)
