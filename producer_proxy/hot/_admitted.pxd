# cython: language_level=3
from libc.stdint cimport uint32_t

from common.limits._meter cimport Meter


cdef struct Pattern:
    const unsigned char* text
    uint32_t size
    bint is_prefix


cdef class AdmittedCredential:
    cdef bytes credential
    cdef readonly str application
    cdef double expires_at            # monotonic seconds
    cdef tuple texts                  # keeps the patterns' bytes
    cdef Pattern* patterns
    cdef uint32_t pattern_count
    cdef Meter meter                  # of the application's rate limit; None: it has none
    cdef bytes reply_key              # of the application's reply tokens
    cdef object origin                # common.callers.Origin: requirements for its connections
    cdef bint is_bound                # whether there are such requirements
    cdef bint may_come_by(self, connection) except -1
    cdef bint may_send(self, const unsigned char* topic, uint32_t size) noexcept
