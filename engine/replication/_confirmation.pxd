# cython: language_level=3
"""C types for confirmation.py, which is compiled as `_confirmation`."""
cimport cython
from libc.stdint cimport int64_t


cdef class _Stored:
    cdef object incarnation
    cdef int64_t end, synced


cdef class Confirmation:
    cdef str _name
    cdef int64_t _end, _synced
    cdef object _record
    cdef dict _awaited
    cdef bint _is_lone
    cdef int64_t _adopted_at, _settled_at
    cdef dict _stored
    cdef readonly int64_t memory, fsync, replicated, replicated_fsync

    @cython.locals(stored=_Stored)
    cpdef bint has_all(self, str member) except *

    @cython.locals(is_more=bint)
    cpdef bint advance(self, int64_t end, int64_t synced) except *

    cpdef bint written(self, int64_t end) except *
    cpdef bint synced(self, int64_t position) except *

    @cython.locals(stored=_Stored)
    cpdef bint stored(self, str member, incarnation, int64_t end, int64_t synced) except *

    @cython.locals(stored=_Stored)
    cdef _Stored _stored_of(self, member)

    @cython.locals(end=int64_t, synced=int64_t, own=int64_t, stored=_Stored)
    cdef bint _advance(self) except *

    @cython.locals(is_more=bint)
    cdef bint _raise(self, int64_t memory, int64_t fsync, int64_t replicated, int64_t replicated_fsync) except *
