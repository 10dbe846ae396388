# cython: language_level=3
from libc.stdint cimport uint64_t


cdef class QueueLimit:
    cdef public double limit, queue_s
    cdef public bint is_stalled
    cdef double base_s, cut_at
    cdef double bound(self) noexcept
    cdef bint lets_in(self, uint64_t waiting, uint64_t asked, int grade) noexcept
    cdef int sample(self, double started, double now, uint64_t waiting) noexcept
