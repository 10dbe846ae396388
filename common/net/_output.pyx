# cython: language_level=3, boundscheck=False, wraparound=False
"""Output of a connection: a buffer that is written once per turn, and later as the socket takes more.

Output may be held: what lies above the position `sendable` stays in the buffer until release() raises it. Meanwhile the
reader is not slow, the connection stays open, and held bytes count as not sent.
"""

import ssl

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport UINT64_MAX, uint64_t

from common.net._buffer cimport grow, held, move_to_front, release
from common.net._reactor cimport EPOLLIN, EPOLLOUT, PolledSocket

from common.net import limits

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void* buffer, size_t size, int flags)
    int MSG_NOSIGNAL, MSG_DONTWAIT

cdef enum:
    KEPT_BYTES = 16384            # larger buffers are freed once they are empty, and counted in out_bytes
    TLS_WRITE_BYTES = 65536       # encrypted at once; more would be copied while the socket takes nothing
    PERIODS = 6                   # in which the write deadline is divided
    PRESSED = 4                   # times the minimum rate is asked for while the process is short of memory


cdef size_t UNREAD_BYTES_MAX = limits.UNREAD_BYTES_MAX


cdef inline size_t counted(size_t cap) noexcept nogil:
    return cap if cap > KEPT_BYTES else 0


cdef inline size_t sendable_end(OutputSocket each) noexcept:
    """Return the end of the bytes in `out` that may leave: between `start` and `end`, by the class's invariant."""
    return each.out.end if each.queued <= each.sendable else each.out.end - <size_t>(each.queued - each.sendable)


cdef class OutputSocket(PolledSocket):
    """A socket with output. Subclasses override stop_writing(), written() and on_room().

    Invariant: `sendable` is not below the position up to which the output has left.
    """

    def __cinit__(self):
        self.sendable = UINT64_MAX

    def __dealloc__(self):
        release(&self.out)

    cdef unsigned char* out_reserve(self, Py_ssize_t size) except NULL:
        """Return the address of `size` free bytes after the output; out_commit() makes them output.

        The address is valid until the next call.
        """
        cdef size_t wanted, cap, before = self.out.cap
        if self.out.start == self.out.end:
            self.out.start = self.out.end = 0
        elif self.out.end + size > before and self.out.start >= held(&self.out):
            # A connection that never runs empty would grow for ever. At most as many bytes move as have left.
            move_to_front(&self.out)
        wanted = self.out.end + size
        if wanted > before:
            cap = 1024 if before == 0 else before
            while cap < wanted:
                cap = cap * 2 if cap < (1 << 20) else wanted
            if not grow(&self.out, cap):
                raise MemoryError()
            self.reactor.out_bytes += counted(cap) - counted(before)
        return self.out.data + self.out.end

    cdef int out_commit(self, Py_ssize_t size) except -1:
        """Make reserved bytes output; they leave at the end of the turn."""
        self.out.end += size
        self.queued += size
        return self.reactor.mark_dirty(self)

    def hold_output(self):
        """From here on, new output leaves only after release() of its position. May be called once."""
        self.sendable = self.queued

    def release(self, uint64_t position):
        """Let output leave up to this position of `queued`, at the end of the turn. The limit never falls."""
        if position > self.sendable:
            self.sendable = min(position, self.queued)
            self.reactor.mark_dirty(self)

    cdef int flush(self) except -1:
        cdef size_t budget
        if self.is_closed:
            return 0
        budget = self.reactor.output_share()
        if self.session is None:
            self.flush_plain(budget)
        else:
            self.flush_tls(budget)
        if self.room_below and held(&self.out) < self.room_below and not self.is_closed:
            self.room_below = 0
            self.on_room()
        return 0

    cdef int flush_plain(self, size_t budget) except -1:
        cdef ssize_t sent
        cdef size_t end = sendable_end(self)
        while self.out.start < end:
            if budget == 0:
                return self.write_later()
            sent = self.send_some(self.out.data + self.out.start, min(end - self.out.start, budget))
            if sent == 0:
                return 0
            self.out.start += sent
            budget -= sent
        return self.all_left()

    cdef int flush_tls(self, size_t budget) except -1:
        """Encrypt and send in pieces, so that no more than one piece is copied before the socket has taken it."""
        cdef ssize_t sent
        cdef size_t size, end = sendable_end(self)
        cdef const unsigned char* rest
        while True:
            size = self.session.unsent()
            if size == 0:
                if self.out.start == end:
                    return self.all_left()
                size = min(end - self.out.start, <size_t>TLS_WRITE_BYTES)
                try:
                    self.session.write(self.out.data + self.out.start, size)
                except ssl.SSLError as error:
                    return self.shut(f"TLS: {error.reason}")
                self.out.start += size
                continue
            if budget == 0:
                return self.write_later()
            rest = self.session.rest
            sent = self.send_some(rest + self.session.rest_at, min(size, budget))
            if sent == 0:
                return 0
            self.session.rest_at += sent
            budget -= sent

    cdef ssize_t send_some(self, const unsigned char* data, size_t size) except -1:
        """Return the number of bytes that the socket took; 0 when it takes none now, or never will."""
        cdef ssize_t sent = send(self.fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent >= 0:
            self.taken += sent
            return sent
        return self.write_later() if errno == EAGAIN or errno == EINTR else self.shut("reset")

    cdef int write_later(self) except -1:
        """Continue in the turn in which the socket can take more, which may be the next one."""
        if not self.writing:
            self.writing = True
            self.reactor.writers += 1
            self.write_since, self.taken, self.slow_periods = self.reactor.now, 0, 0
            self.reactor.interest(self, EPOLLOUT | (EPOLLIN if self.reading else 0))
            self.reactor.watch_deadlines()
        return 0

    cdef int all_left(self) except -1:
        """The socket has taken all that may leave."""
        if self.out.start < self.out.end:
            if self.writing:          # the rest is held: epoll would report room for it in each turn
                self.stop_writing()
            return 0
        self.out.start = self.out.end = 0
        if self.out.cap > KEPT_BYTES:
            self.reactor.out_bytes -= self.out.cap
            release(&self.out)
        return self.written()

    cdef int stop_writing(self) except -1:
        """Called when a socket that was slow has taken all that may leave: go on with the input that waited for it."""
        return 0

    cdef int written(self) except -1:
        """Called when all output has left."""
        return 0

    cdef int on_room(self) except -1:
        """Called once when less output is left than `room_below`, which is 0 then."""
        return 0

    cdef int release_output(self) except -1:
        """Forget the output of a closed socket."""
        if self.writing:
            self.writing = False
            self.reactor.writers -= 1
        self.reactor.out_bytes -= counted(self.out.cap)
        release(&self.out)
        return 0

    cdef int check_progress(self, double now) except -1:
        """Close the connection of a reader that is too slow.

        A byte now and then is no progress: each period needs its share of the minimum rate. While the answers of the
        process take much memory, slow readers are closed after one period.
        """
        cdef double span = now - self.write_since
        cdef double rate
        if sendable_end(self) - self.out.start > UNREAD_BYTES_MAX:
            return self.shut("does not read its answers")
        if span * PERIODS < self.limits.write_deadline_s:
            return 0
        rate = self.taken / span
        self.slow_periods = 0 if rate >= self.limits.write_rate_min else self.slow_periods + 1
        self.write_since, self.taken = now, 0
        if self.slow_periods >= PERIODS:
            return self.shut("does not read its answer")
        if counted(self.out.cap) and rate < PRESSED * self.limits.write_rate_min and (
                self.reactor.out_bytes > self.limits.output_bytes_max // 2):
            return self.shut("reads its answer too slowly while memory is short")
        return 0
