# cython: language_level=3, boundscheck=False, wraparound=False
"""Connections served in loop callbacks: one epoll set for all of them, itself watched by a single gevent watcher.

A turn is: take what is ready, let each connection handle its frames, then run the work that asked for the turn's end
(flush a batch, one writev), then write each connection's output once. So a connection costs no greenlet and no Python
object a call, and sixteen answers that come together leave together.
"""

import logging
import ssl as _ssl

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from common.net._framing cimport Scan, be32, scan_message

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void* ptr
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    int epoll_wait(int epfd, epoll_event* events, int count, int timeout)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL
    uint32_t EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    ssize_t send(int fd, const void* buffer, size_t size, int flags)
    int MSG_NOSIGNAL, MSG_DONTWAIT

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)

cdef extern from "<time.h>" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    int CLOCK_MONOTONIC

cdef enum:
    EVENTS_A_TURN = 256
    SCRATCH_BYTES = 262144
    KEPT_BYTES = 16384            # buffers above this are given back once they are empty
    BUSY_BYTES_MAX = 65536        # what a client may send ahead while its call is in work
    SENT_A_TURN = 131072          # of one connection's output: copying a long answer is what all others would wait for

cdef double SWEEP_S = 0.25

log = logging.getLogger("penstock.net")


cdef double monotonic_s() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return t.tv_sec + t.tv_nsec * 1e-9


cdef inline uint32_t le32(const unsigned char* p) noexcept nogil:
    return (<uint32_t>p[3] << 24) | (<uint32_t>p[2] << 16) | (<uint32_t>p[1] << 8) | p[0]


# ---- the reactor ----------------------------------------------------------------------------------------------------

cdef class TurnEnd:
    """Work done once after all events of a loop turn."""

    cdef int turn_end(self) except -1:
        raise NotImplementedError


cdef class Reactor:
    """The process's one set of connections. Get it by `reactor()`; it belongs to the hub of the thread that asked first."""

    def __cinit__(self):
        self.epfd = epoll_create1(EPOLL_CLOEXEC)
        if self.epfd < 0:
            raise OSError(errno, "epoll_create1")
        self.scratch = <unsigned char*>malloc(SCRATCH_BYTES)
        if self.scratch == NULL:
            raise MemoryError()

    def __init__(self):
        import gevent

        self.turn_ends, self.later, self.dirty, self.graveyard, self.connections = [], [], [], [], set()
        self.bytes_max = 1 << 30
        self.now = monotonic_s()
        self.loop = gevent.get_hub().loop
        self.watcher = self.loop.io(self.epfd, 1)
        self.watcher.start(self._on_ready)
        self.sweeper = self.loop.timer(SWEEP_S, SWEEP_S)
        self.sweeper.start(self._sweep)

    def __dealloc__(self):
        if self.epfd >= 0:
            c_close(self.epfd)
        free(self.scratch)

    cdef int add(self, Connection connection) except -1:
        cdef epoll_event event
        self.now = monotonic_s()
        connection.accepted_at = connection.active_at = self.now
        event.events = EPOLLIN
        event.data.ptr = <void*>connection
        if epoll_ctl(self.epfd, EPOLL_CTL_ADD, connection.fd, &event) < 0:
            raise OSError(errno, "epoll_ctl")
        connection.reading = True
        self.connections.add(connection)
        return 0

    cdef int interest(self, Connection connection, uint32_t events) except -1:
        cdef epoll_event event
        event.events = events
        event.data.ptr = <void*>connection
        if epoll_ctl(self.epfd, EPOLL_CTL_MOD, connection.fd, &event) < 0:
            raise OSError(errno, "epoll_ctl")
        return 0

    def _on_ready(self):
        if self.poll():
            self.run_turn_end()

    def _turn(self):
        self.turn_scheduled = False
        self.now = monotonic_s()
        self.poll()
        self.run_turn_end()

    cdef int poll(self) except -1:
        """Handle what sockets have; returns whether there was anything. The turn's end is the caller's."""
        cdef epoll_event events[EVENTS_A_TURN]
        cdef int i, count
        cdef Connection connection
        count = epoll_wait(self.epfd, events, EVENTS_A_TURN, 0)
        if count <= 0:
            return 0
        self.now = monotonic_s()
        self.in_turn = True
        for i in range(count):
            connection = <Connection>events[i].data.ptr
            if connection.is_closed:      # closed earlier in this turn; the graveyard keeps the object alive until its end
                continue
            try:
                connection.handle(events[i].events)
            except Exception:
                self.drop(connection)
        return 1

    cdef int run_turn_end(self) except -1:
        cdef TurnEnd work
        self.in_turn = True
        self.turn_ends += self.later
        self.later = []
        while self.turn_ends or self.dirty:
            ends, self.turn_ends = self.turn_ends, []
            for work in ends:
                work.queued = False
                try:
                    work.turn_end()
                except Exception:
                    log.exception("work at the end of a loop turn failed")
            self.flush_dirty()
        self.in_turn = False
        if self.later:
            self.ensure_turn()
        if self.graveyard:
            self.graveyard = []
        return 0

    cdef int flush_dirty(self) except -1:
        cdef Connection connection
        dirty, self.dirty = self.dirty, []
        for connection in dirty:
            connection.in_dirty = False
            if connection.writing:            # it goes on by EPOLLOUT
                continue
            try:
                connection.flush()
            except Exception:
                self.drop(connection)
        return 0

    cdef int drop(self, Connection connection) except -1:
        """End a connection in whose handling we failed. Nothing here may end the turn: all other connections wait for its end."""
        log.exception("connection=%s: closed after an error of ours", connection.peer)
        try:
            connection.shut("internal error")
        except Exception:
            log.exception("connection=%s: closing it failed", connection.peer)
        return 0

    cdef int ensure_turn(self) except -1:
        if not self.in_turn and not self.turn_scheduled:
            self.turn_scheduled = True
            self.loop.run_callback(self._turn)
        return 0

    cdef int at_turn_end(self, TurnEnd work) except -1:
        if not work.queued:
            work.queued = True
            self.turn_ends.append(work)
            self.ensure_turn()
        return 0

    cdef int at_next_turn(self, TurnEnd work) except -1:
        """As at_turn_end, but sockets are looked at before."""
        if not work.queued:
            work.queued = True
            self.later.append(work)
            self.ensure_turn()
        return 0

    cdef int mark_dirty(self, Connection connection) except -1:
        if not connection.in_dirty and not connection.is_closed:
            connection.in_dirty = True
            self.dirty.append(connection)
            self.ensure_turn()
        return 0

    def _sweep(self):
        cdef Connection connection
        self.now = monotonic_s()
        for connection in list(self.connections):
            if not connection.is_closed:
                connection.sweep(self.now)


cdef Reactor _the_reactor = None


cdef Reactor reactor_of():
    global _the_reactor
    if _the_reactor is None:
        _the_reactor = Reactor()
    return _the_reactor


def reactor():
    """The process's reactor, made on first use; call it in the thread whose gevent hub shall run it."""
    return reactor_of()


cdef inline bint is_held(Connection connection) noexcept:
    """Whether no further call is taken: one is in work, or the client does not read the answers that it has."""
    return connection.busy or (connection.writing and connection.protocol != PROTOCOL_LINK)


# ---- one connection -------------------------------------------------------------------------------------------------

cdef class Connection:
    """A socket in the reactor. Owns the descriptor; subclasses override on_frame, on_prefix and on_closed.

    Args:
        fd: a connected, non-blocking socket's descriptor; the connection closes it.
        limits: common.net.limits.Limits.
        protocol: PROTOCOL_UNKNOWN (0) to sniff Thrift's framing, PROTOCOL_LINK (3) for our own.
        ssl_context: a server-side ssl.SSLContext for TLS, which is spoken in memory, so a silent handshake stalls nobody.
    """

    def __init__(self, int fd, limits, str peer="", int protocol=PROTOCOL_UNKNOWN, ssl_context=None):
        self.fd = fd
        self.limits = limits
        self.peer = peer
        self.protocol = protocol
        self.frame_max = limits.frame_bytes_max
        self.is_trusted = protocol == PROTOCOL_LINK
        if ssl_context is not None:
            self.tls_in, self.tls_out = _ssl.MemoryBIO(), _ssl.MemoryBIO()
            self.tls = ssl_context.wrap_bio(self.tls_in, self.tls_out, server_side=True)
            self.tls_rest = b""
        self.reactor = reactor_of()
        self.reactor.add(self)

    def __dealloc__(self):
        free(self.scan)
        free(self.inb)
        free(self.outb)

    # -- for subclasses

    cdef int on_frame(self, const unsigned char* frame, Py_ssize_t size) except -1:
        return 0

    cdef bint on_prefix(self, const unsigned char* frame, Py_ssize_t size) except -1:
        """The start of a frame that is too long for a stranger: True when its credential verifies."""
        return False

    cdef bint owes(self) noexcept:
        """Whether an answer is still to come that close_when_sent() has to wait for."""
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
        if not self.parsing and self.in_end > self.in_start:
            self.drain_buffered()
        if not self.reading and not is_held(self) and not self.is_closed:
            self.reading = True
            self.reactor.interest(self, EPOLLIN | (EPOLLOUT if self.writing else 0))
        return 0

    cdef unsigned char* out_reserve(self, Py_ssize_t size) except NULL:
        cdef size_t wanted, cap
        cdef unsigned char* grown
        if self.out_start == self.out_end:
            self.out_start = self.out_end = 0
        wanted = self.out_end + size
        if wanted > self.out_cap:
            cap = 1024 if self.out_cap == 0 else self.out_cap
            while cap < wanted:
                cap = cap * 2 if cap < (1 << 20) else wanted
            grown = <unsigned char*>realloc(self.outb, cap)
            if grown == NULL:
                raise MemoryError()
            self.reactor.bytes_in_flight += cap - self.out_cap
            self.outb, self.out_cap = grown, cap
        return self.outb + self.out_end

    cdef int out_commit(self, Py_ssize_t size) except -1:
        self.out_end += size
        return self.reactor.mark_dirty(self)

    cdef int reply_bytes(self, const unsigned char* frame, Py_ssize_t size) except -1:
        """Queue one whole answer, with the framing that the client speaks."""
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
        """Answer the call in work: exactly once per call. Bytes only queue here; they leave at the end of the loop turn."""
        self.reply_bytes(frame, len(frame))
        self.answered()

    def send(self, bytes data):
        """Queue bytes as they are (link framing is the caller's)."""
        if not self.is_closed:
            memcpy(self.out_reserve(len(data)), <const unsigned char*>data, len(data))
            self.out_commit(len(data))

    def trust(self):
        """The first credential has verified: frames up to frame_bytes_max may come from now on."""
        self.is_trusted = True

    @property
    def closed(self):
        return self.is_closed

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
            if self.tls is None:
                self.receive()
            else:
                self.receive_tls()
        elif events & (EPOLLERR | EPOLLHUP):
            self.shut("reset")
        return 0

    cdef int receive(self) except -1:
        cdef ssize_t got
        cdef size_t room
        cdef int rounds
        cdef bint own
        for rounds in range(4):
            own = self.busy or self.in_end > self.in_start
            if own:
                if is_held(self) and self.in_end - self.in_start >= BUSY_BYTES_MAX:
                    self.reading = False
                    self.reactor.interest(self, EPOLLOUT if self.writing else 0)
                    return 0
                self.grow_in(max(self.in_need, self.in_end - self.in_start + self.step()))
                if not self.reading:
                    return 0
                room = self.in_cap - self.in_end
                got = recv(self.fd, self.inb + self.in_end, room, MSG_DONTWAIT)
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
                self.in_end += got
                if not self.busy:
                    self.drain_buffered()
            else:
                self.feed(self.reactor.scratch, got)
            if self.is_closed or <size_t>got < room:
                return 0
        return 0

    cdef size_t step(self) noexcept:
        """How much to read at least: a buffered message does not say its size, so what it gets grows with what has come."""
        cdef size_t held = self.in_end - self.in_start
        return max(4096, min(held, SCRATCH_BYTES)) if self.protocol == PROTOCOL_BUFFERED else 4096

    cdef int receive_tls(self) except -1:
        cdef ssize_t got = recv(self.fd, self.reactor.scratch, 65536, MSG_DONTWAIT)
        cdef bytes plain
        if got == 0:
            return self.shut("closed by the peer")
        if got < 0:
            return 0 if errno == EAGAIN or errno == EINTR else self.shut("reset")
        self.tls_in.write(self.reactor.scratch[:got])
        while not self.is_closed:
            try:
                plain = self.tls.read(65536)
            except _ssl.SSLWantReadError:
                break
            except _ssl.SSLError as error:
                return self.shut(f"TLS: {error.reason}")
            if not plain:
                return self.shut("closed by the peer")
            self.feed(plain, len(plain))
        if self.tls_out.pending and not self.is_closed:
            self.reactor.mark_dirty(self)
        return 0

    cdef int feed(self, const unsigned char* data, size_t size) except -1:
        cdef Py_ssize_t used
        if self.busy or self.in_end > self.in_start:
            self.keep(data, size)
            if not self.busy:
                self.drain_buffered()
            return 0
        used = self.consume(data, size)
        if not self.is_closed and <size_t>used < size:
            self.keep(data + used, size - used)
            if not self.busy:
                self.frame_since = self.reactor.now
        return 0

    cdef Py_ssize_t consume(self, const unsigned char* data, size_t size) except -1:
        """Handle the whole frames at the start of `data`; returns how many bytes they took."""
        cdef size_t at = 0, left, total, need
        cdef Py_ssize_t message
        cdef const unsigned char* p
        cdef int head
        self.parsing = True
        try:
            while at < size and not is_held(self) and not self.is_closed:
                p, left, need = data + at, size - at, 0
                if self.protocol == PROTOCOL_UNKNOWN and not self.sniff(p[:min(left, 5)]):
                    self.in_need = 5
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
                self.greeted = True
                self.in_need = 0
                self.on_frame(p + head, total - head)
        finally:
            self.parsing = False
        return at

    cdef Py_ssize_t scan_on(self, const unsigned char* p, size_t size, size_t* need) except? -2:
        """scan_message from where the last one of this message stopped. Only an incomplete message keeps a scan."""
        cdef Scan fresh
        cdef Scan* scan = self.scan
        cdef Py_ssize_t message
        if scan == NULL:
            fresh.depth = 0
            scan = &fresh
        message = scan_message(p, size, scan, need)
        if message != 0:
            free(self.scan)
            self.scan = NULL
        elif self.scan == NULL:
            self.scan = <Scan*>malloc(sizeof(Scan))
            if self.scan == NULL:
                raise MemoryError()
            self.scan[0] = fresh
        return message

    cdef int admit(self, size_t total, const unsigned char* frame, size_t have) except -1:
        """1: go on. 0: closed, or more bytes are needed before a stranger's long frame may be taken in."""
        cdef size_t head = 0 if self.protocol == PROTOCOL_BUFFERED else 4
        cdef size_t stranger_max
        if total <= head or total - head > self.frame_max:
            self.shut("frame length out of range")
            return 0
        self.in_need = total
        if self.is_trusted:
            return 1
        stranger_max = self.limits.frame_bytes_untrusted_max
        if total - head <= stranger_max:
            return 1
        if have < stranger_max:
            self.in_need = head + stranger_max
            return 0
        if self.on_prefix(frame, stranger_max):
            self.is_trusted = True
            return 1
        self.shut("a long frame before the first credential verified")
        return 0

    cdef bint sniff(self, bytes first) except -1:
        """True when the protocol is known now; closes what is neither framed nor buffered strict binary."""
        from common.net.framing import FramingError, sniff

        try:
            kind = sniff(first)
        except FramingError as error:
            self.shut(str(error))
            return False
        if kind is None:
            return False
        self.protocol = kind
        return True

    cdef int keep(self, const unsigned char* data, size_t size) except -1:
        self.grow_in(max(self.in_need, self.in_end - self.in_start + size))
        if self.in_cap - self.in_end < size:      # no room by the process limit: grow_in has paused reading, these bytes still fit
            raise MemoryError("input buffer")
        memcpy(self.inb + self.in_end, data, size)
        self.in_end += size
        return 0

    cdef int grow_in(self, size_t wanted) except -1:
        """Room for `wanted` bytes from in_start on. Over the process's limit reading pauses and only what came is kept."""
        cdef unsigned char* grown
        cdef size_t held = self.in_end - self.in_start
        if self.in_start > 0:
            memmove(self.inb, self.inb + self.in_start, held)
            self.in_start, self.in_end = 0, held
        if wanted <= self.in_cap and self.in_cap > held:
            return 0
        if wanted > SCRATCH_BYTES and self.reactor.bytes_in_flight + wanted > self.reactor.bytes_max:
            self.reading = False
            self.reactor.interest(self, EPOLLOUT if self.writing else 0)
            wanted = held + SCRATCH_BYTES
        wanted = max(wanted, held + 1024)
        if wanted <= self.in_cap:
            return 0
        grown = <unsigned char*>realloc(self.inb, wanted)
        if grown == NULL:
            raise MemoryError()
        self.reactor.bytes_in_flight += wanted - self.in_cap
        self.inb, self.in_cap = grown, wanted
        return 0

    cdef int drain_buffered(self) except -1:
        cdef Py_ssize_t used = self.consume(self.inb + self.in_start, self.in_end - self.in_start)
        if self.is_closed:
            return 0
        if used > 0:
            self.frame_since = self.reactor.now
        self.in_start += used
        if self.in_start == self.in_end:
            self.in_start = self.in_end = 0
            if self.in_cap > KEPT_BYTES or self.busy == 0:
                self.reactor.bytes_in_flight -= self.in_cap
                free(self.inb)
                self.inb, self.in_cap = NULL, 0
        return 0

    # -- output

    cdef int flush(self) except -1:
        cdef ssize_t sent
        cdef size_t left = SENT_A_TURN
        if self.is_closed:
            return 0
        if self.tls is not None:
            return self.flush_tls()
        while self.out_start < self.out_end:
            if left == 0:
                return self.write_later()
            sent = self.send_some(self.outb + self.out_start, min(self.out_end - self.out_start, left))
            if sent == 0:
                return 0
            self.out_start += sent
            left -= sent
        self.out_start = self.out_end = 0
        if self.out_cap > KEPT_BYTES:
            self.reactor.bytes_in_flight -= self.out_cap
            free(self.outb)
            self.outb, self.out_cap = NULL, 0
        return self.written()

    cdef ssize_t send_some(self, const unsigned char* data, size_t size) except -1:
        """How many bytes the socket took; 0 when it takes none now, or never will."""
        cdef ssize_t sent = send(self.fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent >= 0:
            self.write_since = self.reactor.now
            return sent
        return self.write_later() if errno == EAGAIN or errno == EINTR else self.shut("reset")

    cdef int write_later(self) except -1:
        """On in the turn in which the socket can take more, which may be the next one."""
        if not self.writing:
            self.writing = True
            self.write_since = self.reactor.now
            self.reactor.interest(self, EPOLLOUT | (EPOLLIN if self.reading else 0))
        return 0

    cdef int written(self) except -1:
        """All output has left. What the client sent while it kept us from writing is due."""
        if self.writing:
            self.writing = False
            self.reading = self.reading or not self.busy
            self.reactor.interest(self, EPOLLIN if self.reading else 0)
            if not self.busy and self.in_end > self.in_start:
                self.frame_since = self.reactor.now
                self.drain_buffered()
        if self.closing and not self.owes():
            self.shut("done")
        return 0

    cdef int flush_tls(self) except -1:
        cdef ssize_t sent
        cdef bytes data
        if self.out_end > self.out_start:
            try:
                self.tls.write(self.outb[self.out_start:self.out_end])
            except _ssl.SSLError as error:
                return self.shut(f"TLS: {error.reason}")
            self.out_start = self.out_end = 0
        if self.tls_out.pending:
            self.tls_rest += self.tls_out.read()
        while self.tls_rest:
            data = self.tls_rest
            sent = self.send_some(data, len(data))
            if sent == 0:
                return 0
            self.tls_rest = data[sent:]
        return self.written()

    # -- end

    cdef int sweep(self, double now) except -1:
        if self.writing:
            if now - self.write_since > self.limits.write_deadline_s:
                self.shut("does not read its answer")
            return 0
        if self.protocol == PROTOCOL_LINK or self.busy:
            return 0
        if self.in_end > self.in_start:
            if not self.reading:                       # paused by the process's limit
                if self.reactor.bytes_in_flight + self.in_need <= self.reactor.bytes_max:
                    self.reading = True
                    self.frame_since = now
                    self.reactor.interest(self, EPOLLIN)
            elif now - self.frame_since > self.limits.read_deadline_s:
                self.shut("frame not complete in time")
        elif not self.greeted:
            if now - self.accepted_at > self.limits.greeting_deadline_s:
                self.shut("silent")
        elif now - self.active_at > self.limits.idle_deadline_s:
            self.shut("idle")
        return 0

    cdef int shut(self, str reason) except -1:
        if self.is_closed:
            return 0
        self.is_closed = True
        self.reactor.graveyard.append(self)
        self.reactor.ensure_turn()
        self.reactor.connections.discard(self)
        self.reactor.bytes_in_flight -= self.in_cap + self.out_cap
        free(self.outb)
        self.outb, self.out_cap, self.out_start, self.out_end = NULL, 0, 0, 0
        if not self.parsing:                           # the frame in work may lie in it
            free(self.inb)
            self.inb = NULL
        self.in_cap = self.in_start = self.in_end = 0
        c_close(self.fd)
        self.fd = -1
        log.debug("connection=%s: closed: %s", self.peer, reason)
        self.on_closed()
        return 0


cdef class CallConnection(Connection):
    """Hands each call to a Python function in the loop callback: `on_call(connection, frame)`."""

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
