# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from common.net._frames cimport FrameSocket


cdef class Connection(FrameSocket):
    cdef readonly bint busy            # a call is in progress
    cdef bint parsing
    cdef bint closing                  # shut once the output is written
    cdef readonly bint unsent          # closed before the last answer had left as a whole
    cdef uint64_t left_at_end          # of a closed connection: see `left`
    cdef bint is_refusing              # a frame was too long: its answer is sent, its rest dropped
    cdef double frame_since
    cdef object tls_context            # None without TLS
    cdef readonly object tls           # ssl.SSLObject or None, also before the client has sent anything
    cdef public object on_close
    cdef public object context
    cdef public object retry_slot      # common.limits.retry_slot.RetrySlot of the last refused call; None: it has none
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
    cdef int frame_refused(self, bytes answer) except -1
    cdef int discard(self) except -1
    cdef int drain_buffered(self) except -1
