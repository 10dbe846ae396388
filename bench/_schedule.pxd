"""When the calls of an open loop are due."""

from libc.stdint cimport int64_t, uint64_t

cdef struct Schedule:
    double interval_ns                 # mean between calls; 0: closed loop, no schedule
    bint poisson
    double next_ns                     # a fraction of a nanosecond is kept, or a high even rate would drift
    uint64_t random

cdef int64_t due_ns(Schedule* schedule) noexcept nogil
cdef void advance(Schedule* schedule) noexcept nogil
