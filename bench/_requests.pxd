"""Writers of request frames, for cimport by the load loop."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from bench._bytes cimport Buffer

cdef class SendFrames:
    cdef Buffer head, tail, topics, pool
    cdef list _topics
    cdef uint32_t* starts              # start of each encoded topic in `topics`, and the end of the last
    cdef uint64_t topic_count, next_topic, random, key_count
    cdef bint sequential
    cdef readonly uint32_t body_size
    cdef readonly uint64_t mark
    cdef void _message(self, Buffer* out, int64_t stamp_ns) noexcept nogil
    cdef int write(self, Buffer* out, uint32_t seqid, uint32_t messages, int64_t stamp_ns) noexcept nogil

cdef class PullFrames:
    cdef Buffer head
    cdef bytes _subscription
    cdef uint32_t max_messages, wait_ms
    cdef int write(self, Buffer* out, uint32_t seqid, const Buffer* acks, uint32_t ack_count, bint last) noexcept nogil
