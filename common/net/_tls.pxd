# cython: language_level=3


cdef class TlsSession:
    cdef readonly object tls               # ssl.SSLObject
    cdef object incoming, outgoing         # ssl.MemoryBIO
    cdef bytes rest                        # encrypted output that the socket has not taken

    cdef int receive(self, const unsigned char* data, size_t size) except -1
    cdef bytes read(self)
    cdef int write(self, const unsigned char* data, size_t size) except -1
    cdef bint has_output(self) except -1
    cdef bytes output(self)
