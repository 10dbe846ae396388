# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.log.write._tail cimport LogTail


cdef class Following:
    cdef object log
    cdef object syncer                   # knows the synced position
    cdef LogTail tail                    # None: the log has none
    cdef uint32_t epoch
    cdef readonly uint64_t confirmed
    cdef public bint is_over
    cdef int64_t heard_ms, reported_ms
    cdef int64_t unsynced_ms             # -1: nothing is unsynced
    cdef uint64_t reported_end, reported_synced
    cdef bint has_reported

    # Takes the payload of BYTES. Returns 0 when nothing has changed: `take_bytes` has to take it.
    cdef int take(self, const unsigned char* payload, Py_ssize_t size, int64_t now_ms) except -1
    cdef int check(self, uint32_t epoch) except -1
    # Whether there is something to tell; `reported_end` and `reported_synced` say it then.
    cdef bint has_news(self, int64_t now_ms) except -1
    cdef uint64_t end(self) except? 0
