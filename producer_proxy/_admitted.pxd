# cython: language_level=3
from libc.stdint cimport uint32_t

from common.limits._meter cimport Meter


cdef struct Pattern:
    const unsigned char* text
    uint32_t size
    bint is_prefix


cdef class Admitted:
    cdef bytes credential
    cdef double expires_at            # monotonic seconds
    cdef tuple texts                  # keeps the patterns' bytes
    cdef Pattern* patterns
    cdef uint32_t pattern_count
    cdef Meter meter                  # of the application's rate limit; None: it has none
    cdef tuple addresses              # networks that it may come from; empty: any
    cdef bint may_come_from(self, str peer) except -1
    cdef bint may_send(self, const unsigned char* topic, uint32_t size) noexcept
