"""Schedule of the calls of an open loop."""

from libc.stdint cimport int64_t, uint64_t

cdef struct Schedule:
    double interval_ns                 # mean between calls; 0: closed loop, no schedule
    bint poisson
    double next_ns                     # fractional: a high even rate would drift otherwise
    uint64_t random

cdef int64_t due_ns(Schedule* schedule) noexcept nogil
cdef void advance(Schedule* schedule) noexcept nogil
