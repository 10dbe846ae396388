# cython: language_level=3
from common.net._buffer cimport Buffer
from common.net._reactor cimport PolledSocket
from common.net._tls cimport TlsSession


cdef class OutputSocket(PolledSocket):
    cdef Buffer out
    cdef TlsSession session            # None without TLS
    cdef double write_since
    cdef unsigned char* out_reserve(self, Py_ssize_t size) except NULL
    cdef int out_commit(self, Py_ssize_t size) except -1
    cdef ssize_t send_some(self, const unsigned char* data, size_t size) except -1
    cdef int write_later(self) except -1
    cdef int written(self) except -1
    cdef int flush_tls(self) except -1
