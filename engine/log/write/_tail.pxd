# cython: language_level=3
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.log.write._append cimport Appender


@cython.final
cdef class LogTail:
    cdef Appender appender
    cdef uint32_t seed
    cdef public bint is_ready            # whether batches may be taken here; `LogApply` says so
    cdef public int64_t newest_ms        # the time that the last applied batch is stamped with

    # Returns 1 when all bytes are in the log; 0: nothing has changed, and `LogApply.apply` has to take them.
    cdef int take_bytes(self, uint64_t position, const unsigned char* data, size_t size) except -1
    cdef int verify(self, uint64_t position, const unsigned char* data, size_t size) noexcept nogil
    cdef int enter(self, uint64_t position, const unsigned char* data, size_t size) except -1
