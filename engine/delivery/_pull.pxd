# cython: language_level=3
"""C types for pull.py, which is compiled as `_pull`."""
cimport cython
from libc.stdint cimport int64_t

from engine.delivery._reply_window cimport ReplyWindow as Window

cdef int64_t NO_LIMIT


cdef class Pull:
    cdef public object answer
    cdef public Window window
    cdef public list ack_codes
    cdef public list pieces
    cdef public int64_t piece_count
    cdef public int64_t messages_left
    cdef public int64_t bytes_left
    cdef public int64_t bytes_wanted
    cdef public int64_t first_bytes_max
    cdef public int64_t invisible_ms
    cdef public int64_t tick
    cdef public bint is_short
    cdef public object subscription
    cdef public object group

    cpdef bound(self, request, settings)

    @cython.locals(size=int64_t)
    cpdef bint allow(self, bint is_first) except -1
