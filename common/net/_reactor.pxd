# cython: language_level=3
from libc.stdint cimport uint32_t


cdef extern from "<sys/epoll.h>" nogil:
    uint32_t EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP


cdef enum:
    SCRATCH_BYTES = 262144


cdef class TurnEnd:
    cdef bint queued
    cdef int turn_end(self) except -1


cdef class PolledSocket:
    cdef Reactor reactor
    cdef int fd
    cdef bint is_closed
    cdef bint in_dirty
    cdef bint reading                  # EPOLLIN requested
    cdef bint writing                  # EPOLLOUT requested
    cdef double accepted_at, active_at
    cdef readonly str peer
    cdef int handle(self, uint32_t events) except -1
    cdef int flush(self) except -1
    cdef int shut(self, str reason) except -1
    cdef int sweep(self, double now) except -1


cdef class Reactor:
    cdef object loop
    cdef object watcher
    cdef object sweeper
    cdef readonly bint sweeps          # the sweeper runs: a socket may have a deadline
    cdef int epfd
    cdef bint in_turn
    cdef bint turn_scheduled
    cdef list turn_ends
    cdef list later                    # of turn_ends, for the next turn
    cdef list dirty
    cdef list graveyard                # closed in this turn; epoll events may still point to them
    cdef readonly set connections
    cdef readonly size_t in_bytes      # of input buffers
    cdef readonly size_t out_bytes     # of output buffers that are more than a small answer
    cdef readonly Py_ssize_t writers   # sockets that take their output slower than it comes
    cdef list turn_watchers            # of TurnEnd, called at each turn's end
    cdef int handshakes_left           # TLS handshakes that may still begin in this turn
    cdef double now                    # monotonic seconds, read once per turn; old outside of one
    cdef unsigned char* scratch        # SCRATCH_BYTES, for one recv at a time
    cdef int at_turn_end(self, TurnEnd work) except -1
    cdef int at_next_turn(self, TurnEnd work) except -1
    cdef int flush_dirty(self) except -1
    cdef size_t output_share(self) noexcept
    cdef int watch_turns(self, TurnEnd watcher) except -1
    cdef int unwatch_turns(self, TurnEnd watcher) except -1
    cdef int add(self, PolledSocket connection) except -1
    cdef int watch_deadlines(self) except -1
    cdef int interest(self, PolledSocket connection, uint32_t events) except -1
    cdef int poll(self) except -1
    cdef int run_turn_end(self) except -1
    cdef int drop(self, PolledSocket connection) except -1
    cdef int ensure_turn(self) except -1
    cdef int mark_dirty(self, PolledSocket connection) except -1


cdef Reactor reactor_of()


cdef double monotonic_s() noexcept nogil
