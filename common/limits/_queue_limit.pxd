# cython: language_level=3
from libc.stdint cimport uint64_t


cdef class QueueLimit:
    cdef public double limit, queue_s
    cdef public bint is_stalled
    cdef double base_s, cut_at, looked_at, stood_until
    cdef double bound(self) noexcept
    cdef void see(self, double now) noexcept
    cdef bint lets_in(self, uint64_t waiting, uint64_t asked, int grade) noexcept
    cdef int sample(self, double started, double now, uint64_t waiting) noexcept
