# cython: language_level=3
"""C types for reply_window.py, which is compiled as `_reply_window`."""
cimport cython
from libc.stdint cimport int64_t

# Constants of the reference, as C values.
cdef int64_t NO_LIMIT, SMALL_BYTES, RESERVE_BYTES, CONTENDED_BYTES, SHARE


cdef class ReplyWindow:
    cdef public int64_t limit
    cdef public int64_t sent
    cdef public bint is_full
    cdef readonly object waiting

    cpdef raise_to(self, int64_t limit)
    cpdef int64_t share(self) except -1

    @cython.locals(room=int64_t, small=int64_t, size=int64_t)
    cpdef (int64_t, int64_t) allowance(self, bint is_first) except *
