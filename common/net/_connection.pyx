# cython: language_level=3, boundscheck=False, wraparound=False
"""Connection: input buffer, calls and answers, deadlines. Reference: connection.py."""

import logging
import ssl

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from common.net._buffer cimport held
from common.net._frames cimport PROTOCOL_BUFFERED, PROTOCOL_FRAMED, PROTOCOL_LINK, PROTOCOL_UNKNOWN, FrameSocket
from common.net._framing cimport be32
from common.net._reactor cimport EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, SCRATCH_BYTES, reactor_of
from common.net._tls_session cimport TlsSession

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    int shutdown(int fd, int how)
    int MSG_DONTWAIT, SHUT_WR

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)

cdef enum:
    KEPT_BYTES = 16384            # larger buffers are freed once they are empty
    BUSY_BYTES_MAX = 65536        # input that a client may send while its call is in progress
    STRANGER_BUSY_BYTES_MAX = 4096
    TLS_READ_BYTES = 65536
    TLS_STRANGER_READ_BYTES = 16384

log = logging.getLogger("penstock.net")


cdef inline uint32_t le32(const unsigned char* p) noexcept nogil:
    return (<uint32_t>p[3] << 24) | (<uint32_t>p[2] << 16) | (<uint32_t>p[1] << 8) | p[0]


cdef inline bint is_held(Connection connection) noexcept:
    """Whether no further call is accepted: one is in progress, or the client does not read its answers."""
    return connection.busy or (connection.writing and not connection.is_link)


cdef inline bint has_enough(Connection connection) noexcept:
    """Whether a client whose call is in progress has sent as much as is kept for later."""
    return is_held(connection) and held(&connection.inp) >= <size_t>(BUSY_BYTES_MAX if connection.is_trusted else STRANGER_BUSY_BYTES_MAX)


cdef class Connection(FrameSocket):
    """A connection in the reactor. Owns the descriptor; subclasses override on_frame, on_prefix and on_closed.

    Args:
        fd: a connected, non-blocking socket's descriptor; the connection closes it.
        limits: common.net.limits.Limits.
        protocol: PROTOCOL_UNKNOWN (0) to sniff Thrift's framing, PROTOCOL_LINK (3) for our own.
        ssl_context: a server-side ssl.SSLContext for TLS.
    """

    def __init__(self, int fd, limits, str peer="", int protocol=PROTOCOL_UNKNOWN, ssl_context=None):
        self.fd = fd
        self.limits = limits
        self.peer = peer
        self.protocol = protocol
        self.frame_max = limits.frame_bytes_max
        self.is_trusted = self.is_link = protocol == PROTOCOL_LINK
        self.tls_context = ssl_context
        self.reactor = reactor_of()
        self.reactor.add(self)
        self.stranger_since = self.accepted_at

    # -- for subclasses

    cdef int on_frame(self, const unsigned char* frame, Py_ssize_t size) except -1:
        return 0

    cdef bint owes(self) noexcept:
        """Whether close_when_sent() has to wait for another answer."""
        return False

    cdef int on_closed(self) except -1:
        if self.on_close is not None:
            self.on_close(self)
        return 0

    cdef int answered(self) except -1:
        self.busy = False
        if self.is_closed:
            return 0
        self.active_at = self.reactor.now
        if not self.parsing and held(&self.inp):
            self.drain_buffered()
        if not self.reading and not is_held(self) and not self.is_closed:
            self.reading = True
            self.reactor.interest(self, EPOLLIN | (EPOLLOUT if self.writing else 0))
        return 0

    cdef int reply_bytes(self, const unsigned char* frame, Py_ssize_t size) except -1:
        """Queue one whole answer, with the client's framing."""
        cdef unsigned char* out
        cdef int head = 4 if self.protocol == PROTOCOL_FRAMED else 0
        if self.is_closed:
            return 0
        out = self.out_reserve(size + head)
        if head:
            out[0], out[1], out[2], out[3] = (size >> 24) & 255, (size >> 16) & 255, (size >> 8) & 255, size & 255
        memcpy(out + head, frame, size)
        return self.out_commit(size + head)

    # -- for Python

    def reply(self, bytes frame):
        """Answer the call in progress, exactly once per call. The bytes leave at the end of the loop turn."""
        self.reply_bytes(frame, len(frame))
        self.answered()

    def send(self, bytes data):
        """Queue bytes without framing, for the link."""
        if not self.is_closed:
            memcpy(self.out_reserve(len(data)), <const unsigned char*>data, len(data))
            self.out_commit(len(data))

    @property
    def closed(self):
        return self.is_closed

    @property
    def left(self):
        """Position up to which the output has left, of `queued`."""
        return self.left_at_end if self.is_closed else self.queued - held(&self.out)

    @property
    def backlog(self):
        """Bytes of output that have not left."""
        return self.queued - self.left_at_end if self.is_closed else held(&self.out)

    def close(self, str reason=""):
        self.shut(reason)

    def close_when_sent(self):
        """Close after the queued output is written; nothing more is read."""
        self.closing = True
        self.reactor.mark_dirty(self)

    # -- input

    cdef int handle(self, uint32_t events) except -1:
        if events & EPOLLOUT:
            self.flush()
            if self.is_closed:
                return 0
        if events & EPOLLIN:
            if self.is_refusing:
                self.discard()
            elif self.tls_context is None:
                self.receive()
            else:
                self.receive_tls()
        elif events & (EPOLLERR | EPOLLHUP):
            self.shut("reset")
        return 0

    cdef int receive(self) except -1:
        cdef ssize_t got
        cdef size_t room
        cdef int rounds, own
        for rounds in range(4):
            own = self.busy or held(&self.inp)
            if own:
                if has_enough(self):
                    return self.pause()
                self.grow_in(max(self.in_need, held(&self.inp) + self.step()), held(&self.inp))
                if not self.reading:
                    return 0
                room = self.inp.cap - self.inp.end
                got = recv(self.fd, self.inp.data + self.inp.end, room, MSG_DONTWAIT)
            else:
                room = SCRATCH_BYTES
                got = recv(self.fd, self.reactor.scratch, room, MSG_DONTWAIT)
            if got == 0:
                return self.shut("closed by the peer")
            if got < 0:
                if errno == EAGAIN or errno == EINTR:
                    return 0
                return self.shut("reset")
            if own:
                self.inp.end += got
                if not self.busy:
                    self.drain_buffered()
            else:
                self.feed(self.reactor.scratch, got)
            if self.is_closed or <size_t>got < room:
                return 0
        return 0

    cdef size_t step(self) noexcept:
        """Return the minimum size of the next read.

        A buffered message does not announce its size, so the reads grow with the part received so far.
        """
        return max(4096, min(held(&self.inp), SCRATCH_BYTES)) if self.protocol == PROTOCOL_BUFFERED else 4096

    cdef int receive_tls(self) except -1:
        cdef ssize_t got
        cdef bytes plain
        if has_enough(self):
            return self.pause()
        if self.session is None:
            # A session costs 40 KiB and up to 1 ms: with its first bytes, a few per turn. The rest stay readable meanwhile.
            if self.reactor.handshakes_left == 0:
                return 0
            self.reactor.handshakes_left -= 1
            self.session = TlsSession(self.tls_context)
            self.tls = self.session.tls
        got = recv(self.fd, self.reactor.scratch, TLS_READ_BYTES if self.is_trusted else TLS_STRANGER_READ_BYTES, MSG_DONTWAIT)
        if got == 0:
            return self.shut("closed by the peer")
        if got < 0:
            return 0 if errno == EAGAIN or errno == EINTR else self.shut("reset")
        self.session.receive(self.reactor.scratch, got)
        while not self.is_closed:
            try:
                plain = self.session.read()
            except ssl.SSLError as error:
                return self.shut(f"TLS: {error.reason}")
            if plain is None:
                break
            if not plain:
                return self.shut("closed by the peer")
            self.feed(plain, len(plain))
        if not self.is_closed and self.session.unsent():
            self.reactor.mark_dirty(self)
        return 0

    cdef int feed(self, const unsigned char* data, size_t size) except -1:
        cdef Py_ssize_t used
        if self.busy or held(&self.inp):
            self.keep(data, size)
            if not self.busy:
                self.drain_buffered()
            return 0
        used = self.consume(data, size)
        if not self.is_closed and not self.is_refusing and <size_t>used < size:
            self.keep(data + used, size - used)
            if not self.busy:
                self.frame_since = self.reactor.now
        return 0

    cdef Py_ssize_t consume(self, const unsigned char* data, size_t size) except -1:
        """Handle the complete frames at the start of `data`; returns their number of bytes.

        Bounds: `at` never exceeds `size`, and on_frame() gets a frame only when all its bytes lie below `size`.
        """
        cdef size_t at = 0, left, total, need
        cdef Py_ssize_t message
        cdef const unsigned char* p
        cdef int head
        self.parsing = True
        try:
            while at < size and not is_held(self) and not self.is_closed and not self.is_refusing:
                p, left, need = data + at, size - at, 0
                if self.protocol == PROTOCOL_UNKNOWN and not self.sniff(p[:min(left, <size_t>6)]):
                    self.in_need = 6
                    break
                if self.protocol == PROTOCOL_BUFFERED:
                    head = 0
                    message = self.scan_on(p, left, &need)
                    if message < 0:
                        self.shut("illegal message")
                        break
                    total = need if message == 0 else message
                else:
                    head = 4
                    if left < 4:
                        self.in_need = 4
                        break
                    total = 4 + <size_t>(be32(p) if self.protocol == PROTOCOL_FRAMED else le32(p))
                if self.admit(total, p + head, left - head) == 0:
                    break
                if need or left < total:
                    break
                at += total
                self.in_need = 0
                self.on_frame(p + head, total - head)
        finally:
            self.parsing = False
        return at

    cdef int drain_buffered(self) except -1:
        cdef Py_ssize_t used = self.consume(self.inp.data + self.inp.start, held(&self.inp))
        if self.is_closed:
            return 0
        if self.is_refusing:
            used = held(&self.inp)
        if used > 0:
            self.frame_since = self.reactor.now
        self.inp.start += used
        if self.inp.start == self.inp.end:
            self.inp.start = self.inp.end = 0
            if self.inp.cap > KEPT_BYTES or self.busy == 0:
                self.drained()
        return 0

    cdef int frame_refused(self, bytes answer) except -1:
        """Answer a frame whose size is not allowed, and drop the rest of it.

        The connection stays open until the client has read the answer: a reset would overtake it.
        """
        self.is_refusing = True
        self.frame_since = self.reactor.now
        return self.reply_bytes(answer, len(answer))

    cdef int discard(self) except -1:
        cdef ssize_t got = recv(self.fd, self.reactor.scratch, SCRATCH_BYTES, MSG_DONTWAIT)
        if got == 0:
            return self.shut("closed by the peer")
        if got < 0 and errno != EAGAIN and errno != EINTR:
            return self.shut("reset")
        return 0

    # -- output

    cdef int stop_writing(self) except -1:
        self.writing = False
        self.reactor.writers -= 1
        self.reading = self.reading or not self.busy
        self.reactor.interest(self, EPOLLIN if self.reading else 0)
        if not self.busy and held(&self.inp):
            self.frame_since = self.reactor.now
            self.drain_buffered()
        return 0

    cdef int written(self) except -1:
        if self.writing:
            self.stop_writing()
        if self.is_refusing:
            shutdown(self.fd, SHUT_WR)
        elif self.closing and not self.owes():
            self.shut("done")
        return 0

    # -- end

    cdef int sweep(self, double now) except -1:
        if self.writing:
            self.check_progress(now)
        elif self.is_link or (self.busy and not self.is_refusing):
            return not self.is_link                    # whose only deadlines are those of its output
        elif self.is_refusing:
            if now - self.frame_since > self.limits.read_deadline_s:
                self.shut("refused")
        elif not self.is_trusted and now - self.stranger_since > self.limits.greeting_deadline_s:
            self.shut("no valid credential in time")
        elif held(&self.inp):
            if not self.reading:                       # paused by the process limit
                if self.fits(self.in_need - self.inp.cap if self.in_need > self.inp.cap else 0):
                    self.reading = True
                    self.frame_since = now
                    self.reactor.interest(self, EPOLLIN)
            elif now - self.frame_since > self.limits.read_deadline_s:
                self.shut("frame not complete in time")
        elif now - self.active_at > self.limits.idle_deadline_s:
            self.shut("idle")
        return 1

    cdef int shut(self, str reason) except -1:
        if self.is_closed:
            return 0
        self.is_closed = True
        self.unsent = self.writing or held(&self.out) > 0
        self.left_at_end = self.queued - (held(&self.out) or self.unsent)    # encrypted bytes are some of the last answer
        self.reactor.graveyard.append(self)
        self.reactor.ensure_turn()
        self.reactor.connections.discard(self)
        self.release_output()
        self.release_input(is_in_use=self.parsing)  # consume() still reads the frame from the buffer
        c_close(self.fd)
        self.fd = -1
        log.debug("connection=%s: closed: %s", self.peer, reason)
        self.on_closed()
        return 0


cdef class CallConnection(Connection):
    """Passes each call to a Python function in the loop callback: `on_call(connection, frame)`."""

    cdef object on_call
    cdef object prefix_check

    def __init__(self, int fd, limits, str peer="", ssl_context=None, on_call=None, prefix_check=None):
        self.on_call = on_call
        self.prefix_check = prefix_check
        Connection.__init__(self, fd, limits, peer, PROTOCOL_UNKNOWN, ssl_context)

    cdef int on_frame(self, const unsigned char* frame, Py_ssize_t size) except -1:
        self.busy = True
        self.on_call(self, frame[:size])
        return 0

    cdef bint on_prefix(self, const unsigned char* frame, Py_ssize_t size) except -1:
        return self.prefix_check is not None and self.prefix_check(self, frame[:size])
