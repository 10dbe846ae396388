# cython: language_level=3, boundscheck=False, wraparound=False
"""Verified credentials and the permissions of their applications, for the hot path."""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from common.limits._meter cimport Meter


cdef class AdmittedCredential:
    """A verified credential and its application's send permissions: the native form of Principal.may_send."""

    def __init__(self, bytes credential, str application, double expires_at, patterns, Meter meter, origin, bytes reply_key):
        cdef bytes text
        self.credential, self.expires_at, self.meter = credential, expires_at, meter
        self.application, self.reply_key = application, reply_key
        self.origin, self.is_bound = origin, any(origin)
        self.texts = tuple(pattern.encode() for pattern in patterns)
        self.patterns = <Pattern*>malloc(max(1, len(self.texts)) * sizeof(Pattern))
        if self.patterns == NULL:
            raise MemoryError()
        for text in self.texts:
            self.patterns[self.pattern_count].is_prefix = text.endswith(b"*")
            self.patterns[self.pattern_count].text = text
            self.patterns[self.pattern_count].size = <uint32_t>len(text) - (1 if text.endswith(b"*") else 0)
            self.pattern_count += 1

    def __dealloc__(self):
        free(self.patterns)

    cdef bint may_come_by(self, connection) except -1:
        return not self.is_bound or self.origin.admits(connection)

    cdef bint may_send(self, const unsigned char* topic, uint32_t size) noexcept:
        cdef uint32_t i
        cdef Pattern* pattern
        for i in range(self.pattern_count):
            pattern = &self.patterns[i]
            if (pattern.size == size or (pattern.is_prefix and pattern.size < size)) and memcmp(pattern.text, topic, pattern.size) == 0:
                return True
        return False
