# cython: language_level=3


cdef class TlsSession:
    cdef readonly object tls               # ssl.SSLObject
    cdef object incoming, outgoing         # ssl.MemoryBIO
    cdef bytes rest                        # encrypted output, of which the socket has taken rest_at bytes
    cdef Py_ssize_t rest_at

    cdef int receive(self, const unsigned char* data, size_t size) except -1
    cdef bytes read(self)
    cdef int write(self, const unsigned char* data, size_t size) except -1
    cdef Py_ssize_t unsent(self) except -1
