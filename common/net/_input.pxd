# cython: language_level=3
from common.net._buffer cimport Buffer
from common.net._output cimport OutputSocket


cdef class InputSocket(OutputSocket):
    cdef Buffer inp
    cdef bint is_trusted               # the last credential has verified, or the peer is an engine
    cdef double stranger_since         # it is not trusted since then
    cdef public object on_trust        # called as (connection, is_trusted) when that changes
    cdef bint is_link                  # between our own processes; its input is never paused
    cdef size_t in_need                # bytes of the incomplete frame, as far as known
    cpdef trust(self)
    cdef int keep(self, const unsigned char* data, size_t size) except -1
    cdef int grow_in(self, size_t wanted, size_t least) except -1
    cdef bint fits(self, size_t more) except -1
    cdef int pause(self) except -1
    cdef int release_input(self, bint is_in_use) except -1
    cdef int drained(self) except -1
