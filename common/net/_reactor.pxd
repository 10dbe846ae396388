# cython: language_level=3
from libc.stdint cimport uint32_t

from common.net._framing cimport Scan


cdef enum:
    PROTOCOL_UNKNOWN = 0
    PROTOCOL_FRAMED = 1
    PROTOCOL_BUFFERED = 2
    PROTOCOL_LINK = 3


cdef class TurnEnd:
    cdef bint queued
    cdef int turn_end(self) except -1


cdef class Reactor:
    cdef object loop
    cdef object watcher
    cdef object sweeper
    cdef int epfd
    cdef bint in_turn
    cdef bint turn_scheduled
    cdef list turn_ends
    cdef list later                    # of turn_ends, for the next turn
    cdef list dirty
    cdef list graveyard
    cdef readonly set connections
    cdef readonly size_t bytes_in_flight
    cdef public size_t bytes_max
    cdef double now                    # monotonic seconds, taken once a turn
    cdef unsigned char* scratch
    cdef int at_turn_end(self, TurnEnd work) except -1
    cdef int at_next_turn(self, TurnEnd work) except -1
    cdef int flush_dirty(self) except -1
    cdef int add(self, Connection connection) except -1
    cdef int interest(self, Connection connection, uint32_t events) except -1
    cdef int poll(self) except -1
    cdef int run_turn_end(self) except -1
    cdef int drop(self, Connection connection) except -1
    cdef int ensure_turn(self) except -1
    cdef int mark_dirty(self, Connection connection) except -1


cdef class Connection:
    cdef Reactor reactor
    cdef int fd
    cdef int protocol
    cdef bint busy
    cdef bint is_closed
    cdef bint is_trusted
    cdef bint in_dirty
    cdef bint reading                  # EPOLLIN asked for
    cdef bint writing                  # EPOLLOUT asked for
    cdef bint parsing
    cdef bint greeted                  # a complete frame has come
    cdef bint closing                  # shut once the output is written
    cdef size_t frame_max
    cdef Scan* scan                    # while an unframed message is incomplete
    cdef unsigned char* inb
    cdef size_t in_cap, in_start, in_end, in_need
    cdef unsigned char* outb
    cdef size_t out_cap, out_start, out_end
    cdef double accepted_at, frame_since, active_at, write_since
    cdef object limits
    cdef readonly object tls
    cdef object tls_in
    cdef object tls_out
    cdef bytes tls_rest
    cdef readonly str peer
    cdef public object on_close
    cdef public object context
    cdef int on_frame(self, const unsigned char* frame, Py_ssize_t size) except -1
    cdef bint on_prefix(self, const unsigned char* frame, Py_ssize_t size) except -1
    cdef int on_closed(self) except -1
    cdef int answered(self) except -1
    cdef unsigned char* out_reserve(self, Py_ssize_t size) except NULL
    cdef int out_commit(self, Py_ssize_t size) except -1
    cdef int reply_bytes(self, const unsigned char* frame, Py_ssize_t size) except -1
    cdef int shut(self, str reason) except -1
    cdef bint owes(self) noexcept
    cdef int handle(self, uint32_t events) except -1
    cdef int receive(self) except -1
    cdef int receive_tls(self) except -1
    cdef size_t step(self) noexcept
    cdef ssize_t send_some(self, const unsigned char* data, size_t size) except -1
    cdef int write_later(self) except -1
    cdef int written(self) except -1
    cdef Py_ssize_t scan_on(self, const unsigned char* p, size_t size, size_t* need) except? -2
    cdef int feed(self, const unsigned char* data, size_t size) except -1
    cdef Py_ssize_t consume(self, const unsigned char* data, size_t size) except -1
    cdef int keep(self, const unsigned char* data, size_t size) except -1
    cdef int grow_in(self, size_t wanted) except -1
    cdef int drain_buffered(self) except -1
    cdef int flush(self) except -1
    cdef int flush_tls(self) except -1
    cdef int sweep(self, double now) except -1
    cdef int admit(self, size_t total, const unsigned char* frame, size_t have) except -1
    cdef bint sniff(self, bytes first) except -1


cdef Reactor reactor_of()


cdef double monotonic_s() noexcept nogil
