# cython: language_level=3
from common.net._framing cimport MessageScan
from common.net._input cimport InputSocket


cdef enum:
    PROTOCOL_UNKNOWN = 0
    PROTOCOL_FRAMED = 1
    PROTOCOL_BUFFERED = 2
    PROTOCOL_LINK = 3


cdef class FrameSocket(InputSocket):
    cdef int protocol
    cdef size_t frame_max
    cdef MessageScan* scan             # while an unframed message is incomplete
    cdef bint on_prefix(self, const unsigned char* frame, Py_ssize_t size) except -1
    cdef Py_ssize_t scan_on(self, const unsigned char* p, size_t size, size_t* need) except? -2
    cdef int refuse_frame(self, const unsigned char* frame, size_t have, str sentence) except -1
    cdef int frame_refused(self, bytes answer) except -1
    cdef int admit(self, size_t total, const unsigned char* frame, size_t have) except -1
    cdef bint sniff(self, bytes first) except -1
