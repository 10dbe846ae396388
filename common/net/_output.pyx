# cython: language_level=3, boundscheck=False, wraparound=False
"""Output of a connection: a buffer that is written once per turn, and later as the socket takes more."""

import ssl

from libc.errno cimport EAGAIN, EINTR, errno

from common.net._buffer cimport grow, held, release
from common.net._reactor cimport EPOLLIN, EPOLLOUT, PolledSocket

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void* buffer, size_t size, int flags)
    int MSG_NOSIGNAL, MSG_DONTWAIT

cdef enum:
    KEPT_BYTES = 16384            # larger buffers are freed once they are empty
    SENT_PER_TURN = 131072        # per connection: all others wait while a long answer is copied


cdef class OutputSocket(PolledSocket):
    """A socket with output. Subclasses override written()."""

    def __dealloc__(self):
        release(&self.out)

    cdef unsigned char* out_reserve(self, Py_ssize_t size) except NULL:
        """Return the address of `size` free bytes after the output; out_commit() makes them output.

        The address is valid until the next call.
        """
        cdef size_t wanted, cap, before = self.out.cap
        if self.out.start == self.out.end:
            self.out.start = self.out.end = 0
        wanted = self.out.end + size
        if wanted > before:
            cap = 1024 if before == 0 else before
            while cap < wanted:
                cap = cap * 2 if cap < (1 << 20) else wanted
            if not grow(&self.out, cap):
                raise MemoryError()
            self.reactor.bytes_in_flight += cap - before
        return self.out.data + self.out.end

    cdef int out_commit(self, Py_ssize_t size) except -1:
        """Make reserved bytes output; they leave at the end of the turn."""
        self.out.end += size
        return self.reactor.mark_dirty(self)

    cdef int flush(self) except -1:
        cdef ssize_t sent
        cdef size_t left = SENT_PER_TURN
        if self.is_closed:
            return 0
        if self.session is not None:
            return self.flush_tls()
        while self.out.start < self.out.end:
            if left == 0:
                return self.write_later()
            sent = self.send_some(self.out.data + self.out.start, min(held(&self.out), left))
            if sent == 0:
                return 0
            self.out.start += sent
            left -= sent
        self.out.start = self.out.end = 0
        if self.out.cap > KEPT_BYTES:
            self.reactor.bytes_in_flight -= self.out.cap
            release(&self.out)
        return self.written()

    cdef int flush_tls(self) except -1:
        cdef ssize_t sent
        cdef bytes data
        if self.out.end > self.out.start:
            try:
                self.session.write(self.out.data + self.out.start, held(&self.out))
            except ssl.SSLError as error:
                return self.shut(f"TLS: {error.reason}")
            self.out.start = self.out.end = 0
        data = self.session.output()
        while data:
            sent = self.send_some(data, len(data))
            if sent == 0:
                return 0
            self.session.rest = data = data[sent:]
        return self.written()

    cdef ssize_t send_some(self, const unsigned char* data, size_t size) except -1:
        """Return the number of bytes that the socket took; 0 when it takes none now, or never will."""
        cdef ssize_t sent = send(self.fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent >= 0:
            self.write_since = self.reactor.now
            return sent
        return self.write_later() if errno == EAGAIN or errno == EINTR else self.shut("reset")

    cdef int write_later(self) except -1:
        """Continue in the turn in which the socket can take more, which may be the next one."""
        if not self.writing:
            self.writing = True
            self.write_since = self.reactor.now
            self.reactor.interest(self, EPOLLOUT | (EPOLLIN if self.reading else 0))
        return 0

    cdef int written(self) except -1:
        """Called when all output has left."""
        return 0
