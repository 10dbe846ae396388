# cython: language_level=3
from common.net._framing cimport MessageScan
from common.net._output cimport OutputSocket


cdef enum:
    PROTOCOL_UNKNOWN = 0
    PROTOCOL_FRAMED = 1
    PROTOCOL_BUFFERED = 2
    PROTOCOL_LINK = 3


cdef class FrameSocket(OutputSocket):
    cdef int protocol
    cdef bint is_trusted
    cdef size_t frame_max
    cdef MessageScan* scan             # while an unframed message is incomplete
    cdef size_t in_need                # bytes of the incomplete frame, as far as known
    cdef object limits
    cdef bint on_prefix(self, const unsigned char* frame, Py_ssize_t size) except -1
    cdef Py_ssize_t scan_on(self, const unsigned char* p, size_t size, size_t* need) except? -2
    cdef int admit(self, size_t total, const unsigned char* frame, size_t have) except -1
    cdef bint sniff(self, bytes first) except -1
