# cython: language_level=3
from libc.stdint cimport uint32_t

from common.net._buffer cimport Buffer
from common.net._frames cimport FrameSocket


cdef class Connection(FrameSocket):
    cdef bint busy                     # a call is in progress
    cdef bint parsing
    cdef bint greeted                  # a complete frame has come
    cdef bint closing                  # shut once the output is written
    cdef Buffer inp
    cdef double frame_since
    cdef readonly object tls           # ssl.SSLObject or None
    cdef public object on_close
    cdef public object context
    cdef int on_frame(self, const unsigned char* frame, Py_ssize_t size) except -1
    cdef int on_closed(self) except -1
    cdef int answered(self) except -1
    cdef int reply_bytes(self, const unsigned char* frame, Py_ssize_t size) except -1
    cdef bint owes(self) noexcept
    cdef int receive(self) except -1
    cdef int receive_tls(self) except -1
    cdef size_t step(self) noexcept
    cdef int feed(self, const unsigned char* data, size_t size) except -1
    cdef Py_ssize_t consume(self, const unsigned char* data, size_t size) except -1
    cdef int keep(self, const unsigned char* data, size_t size) except -1
    cdef int grow_in(self, size_t wanted) except -1
    cdef int drain_buffered(self) except -1
