# cython: language_level=3
from libc.stdint cimport uint64_t

from common.net._buffer cimport Buffer
from common.net._reactor cimport PolledSocket
from common.net._tls_session cimport TlsSession


cdef class OutputSocket(PolledSocket):
    cdef Buffer out
    cdef readonly uint64_t queued      # position after all output so far
    cdef uint64_t sendable             # position up to which output may leave; UINT64_MAX: all of it
    cdef TlsSession session            # None without TLS
    cdef object limits
    cdef double write_since            # start of the period in which the reader's progress is measured
    cdef size_t taken                  # bytes that the socket took in it
    cdef int slow_periods              # successive periods with too little progress
    cdef size_t room_below             # call on_room() once less output than this is left; 0: nobody waits for it
    cdef unsigned char* out_reserve(self, Py_ssize_t size) except NULL
    cdef int out_commit(self, Py_ssize_t size) except -1
    cdef int flush_plain(self, size_t budget) except -1
    cdef int flush_tls(self, size_t budget) except -1
    cdef ssize_t send_some(self, const unsigned char* data, size_t size) except -1
    cdef int write_later(self) except -1
    cdef int all_left(self) except -1
    cdef int stop_writing(self) except -1
    cdef int written(self) except -1
    cdef int on_room(self) except -1
    cdef int release_output(self) except -1
    cdef int check_progress(self, double now) except -1
