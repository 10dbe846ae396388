# cython: language_level=3
"""C types for output_hold.py, which is compiled as `_output_hold`."""
cimport cython
from libc.stdint cimport int64_t


cdef class _Holder:
    cdef public object peer
    cdef public Py_ssize_t count
    cdef public _Entry last


cdef class _Entry:
    cdef readonly int64_t end
    cdef int64_t queued
    cdef public _Holder holder


cdef class OutputHold:
    cdef object _end
    cdef readonly int64_t confirmed
    cdef object _entries
    cdef dict _holders
    cdef Py_ssize_t _dropped

    @cython.locals(end=int64_t, holder=_Holder, entry=_Entry)
    cpdef bint note(self, peer, int64_t queued) except *

    @cython.locals(entry=_Entry, holder=_Holder)
    cpdef confirm(self, int64_t position)
