"""One client connection of the generator: a non-blocking socket with one call in flight."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from bench._bytes cimport Buffer

cdef struct Connection:
    int fd
    bint pulls                         # a consumer's; otherwise a producer's
    bint in_flight
    bint waits_to_write                # part of the request is still here; epoll watches for EPOLLOUT too
    bint finished                      # takes no further call
    bint last_pull                     # the call in flight only delivers acknowledgements
    uint32_t seqid
    uint32_t messages                  # of the call in flight
    int64_t counted_from_ns            # the latency's origin: planned time in open loop, else just before the write
    int64_t sent_ns
    int64_t freed_ns                   # when it last became free, open loop only
    uint64_t calls
    Buffer out
    size_t out_done
    Buffer frame                       # the answer so far, its length header included
    Buffer acks
    uint32_t ack_count

cdef enum Received:
    CLOSED = -3
    TOO_LARGE = -2
    NO_MEMORY = -1
    PARTLY = 0
    WHOLE = 1

cdef int flush(Connection* connection) noexcept nogil
cdef int watch_writes(Connection* connection, int epoll, int index, bint wanted) noexcept nogil
cdef Received receive(Connection* connection) noexcept nogil
cdef int watch(Connection* connection, int epoll, int index) noexcept nogil
cdef void release(Connection* connection) noexcept nogil
