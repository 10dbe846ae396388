# cython: language_level=3, boundscheck=False, wraparound=False
"""Reactor: serves all connections in loop callbacks, by one epoll set that a single gevent watcher watches.

A turn has three steps: each ready connection handles its frames; the work for the turn's end runs (flush a batch, one
writev); each connection's output is written once. So a connection needs no greenlet and a call needs no Python object.
Answers that become ready in the same turn are sent together.
"""

import logging

from libc.errno cimport errno
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc

from common.limited_log import LimitedLog

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

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)

cdef extern from "<time.h>" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    int CLOCK_MONOTONIC

cdef enum:
    EVENTS_PER_TURN = 256
    HANDSHAKES_PER_TURN = 4       # of TLS: all other connections wait for them, up to 1 ms each
    SENT_PER_TURN = 4 << 20       # of all sockets whose output waits: all others wait while it is copied
    SENT_MIN = 16384              # per socket and turn
    SENT_MAX = 131072

cdef double SWEEP_S = 0.25

limited = LimitedLog(logging.getLogger("penstock.net"))


cdef double monotonic_s() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return t.tv_sec + t.tv_nsec * 1e-9



cdef class TurnEnd:
    """Work done once after all events of a loop turn."""

    cdef int turn_end(self) except -1:
        raise NotImplementedError


cdef class TurnCall(TurnEnd):
    """A Python function that is called at the end of each turn. An exception of it is logged."""

    cdef object call

    cdef int turn_end(self) except -1:
        try:
            self.call()
        except Exception:
            limited.exception("a call at the end of a loop turn failed")
        return 0


cdef class PolledSocket:
    """A socket in the reactor's epoll set. Subclasses override the methods.

    The event of a socket points to its object. The object outlives the event: `connections` refers to it while it is
    open, `graveyard` until the end of the turn in which it closed.
    """

    cdef int handle(self, uint32_t events) except -1:
        """Take what epoll reports."""
        return 0

    cdef int flush(self) except -1:
        """Write the output, at the end of a turn."""
        return 0

    cdef int shut(self, str reason) except -1:
        """Close at once."""
        return 0

    cdef int sweep(self, double now) except -1:
        """Check the deadlines, every SWEEP_S seconds; returns whether the socket has any."""
        return 0


cdef class Reactor:
    """The process's connections. Get it by `reactor()`; it belongs to the gevent hub of the first caller's thread."""

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
        self.turn_watchers = []
        self.now = monotonic_s()
        self.loop = gevent.get_hub().loop
        self.watcher = self.loop.io(self.epfd, 1)
        self.watcher.start(self._on_ready)
        self.sweeper = self.loop.timer(SWEEP_S, SWEEP_S)

    def __dealloc__(self):
        if self.epfd >= 0:
            c_close(self.epfd)
        free(self.scratch)

    cdef int add(self, PolledSocket connection) except -1:
        cdef epoll_event event
        self.now = monotonic_s()
        connection.accepted_at = connection.active_at = self.now
        event.events = EPOLLIN
        event.data.ptr = <void*>connection
        if epoll_ctl(self.epfd, EPOLL_CTL_ADD, connection.fd, &event) < 0:
            raise OSError(errno, "epoll_ctl")
        connection.reading = True
        self.connections.add(connection)
        self.watch_deadlines()
        return 0

    cdef int watch_deadlines(self) except -1:
        """Sweep from now on: a socket may have a deadline. Without any the timer rests, so that an idle process sleeps."""
        if not self.sweeps:
            self.sweeps = True
            self.sweeper.start(self._sweep)
        return 0

    cdef int interest(self, PolledSocket connection, uint32_t events) except -1:
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
        """Handle ready sockets; returns whether there were any. The caller runs the turn's end."""
        cdef epoll_event events[EVENTS_PER_TURN]
        cdef int i, count
        cdef PolledSocket connection
        count = epoll_wait(self.epfd, events, EVENTS_PER_TURN, 0)
        if count <= 0:
            return 0
        self.now = monotonic_s()
        self.in_turn = True
        self.handshakes_left = HANDSHAKES_PER_TURN
        for i in range(count):
            connection = <PolledSocket>events[i].data.ptr
            if connection.is_closed:      # closed earlier in this turn; the graveyard keeps the object alive
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
        while True:
            while self.turn_ends or self.dirty:
                ends, self.turn_ends = self.turn_ends, []
                for work in ends:
                    work.queued = False
                    try:
                        work.turn_end()
                    except Exception:
                        limited.exception("work at the end of a loop turn failed")
                self.flush_dirty()
            for work in self.turn_watchers:
                work.turn_end()
            if not self.dirty:
                break
        self.in_turn = False
        if self.later:
            self.ensure_turn()
        if self.graveyard:
            self.graveyard = []
        return 0

    cdef int flush_dirty(self) except -1:
        cdef PolledSocket connection
        dirty, self.dirty = self.dirty, []
        for connection in dirty:
            connection.in_dirty = False
            if connection.writing:            # continues on EPOLLOUT
                continue
            try:
                connection.flush()
            except Exception:
                self.drop(connection)
        return 0

    cdef size_t output_share(self) noexcept:
        """Maximum bytes that a socket sends in this turn."""
        cdef Py_ssize_t share = SENT_PER_TURN // max(self.writers, <Py_ssize_t>1)
        return min(max(share, <Py_ssize_t>SENT_MIN), <Py_ssize_t>SENT_MAX)

    cdef int watch_turns(self, TurnEnd watcher) except -1:
        """Have the watcher's turn_end() called at the end of each turn, when all output was written once."""
        self.turn_watchers.append(watcher)
        return 0

    cdef int unwatch_turns(self, TurnEnd watcher) except -1:
        self.turn_watchers = [each for each in self.turn_watchers if each is not watcher]
        return 0

    def call_each_turn(self, call):
        """Have a function called at the end of each turn with events, when all output was written once; for ever."""
        cdef TurnCall watcher = TurnCall.__new__(TurnCall)
        watcher.call = call
        self.watch_turns(watcher)

    cdef int drop(self, PolledSocket connection) except -1:
        """Close a connection after an exception in its handling.

        Never raises: all other connections wait for the end of the turn.
        """
        try:
            connection.shut("internal error")
        except Exception:
            limited.exception("connection=%s: closing it failed", connection.peer)
        limited.exception("connection=%s: closed after an internal error", connection.peer)
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
        """As at_turn_end(), but after the next poll of sockets."""
        if not work.queued:
            work.queued = True
            self.later.append(work)
            self.ensure_turn()
        return 0

    cdef int mark_dirty(self, PolledSocket connection) except -1:
        if not connection.in_dirty and not connection.is_closed:
            connection.in_dirty = True
            self.dirty.append(connection)
            self.ensure_turn()
        return 0

    def _sweep(self):
        cdef PolledSocket connection
        cdef bint has_deadlines = False
        self.now = monotonic_s()
        for connection in list(self.connections):
            if not connection.is_closed and connection.sweep(self.now):
                has_deadlines = True
        if not has_deadlines:
            self.sweeps = False
            self.sweeper.stop()


cdef Reactor _the_reactor = None


cdef Reactor reactor_of():
    global _the_reactor
    if _the_reactor is None:
        _the_reactor = Reactor()
    return _the_reactor


def reactor():
    """Return the process's reactor, made on first use; call it in the thread whose gevent hub shall run it."""
    return reactor_of()
