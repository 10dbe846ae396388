"""Walks one frame many times without Python in between, as the proxies do."""

from libc.stdint cimport uint32_t

from common.wire cimport _walk

cdef _walk.Message messages[1000]


def walk_send_rounds(bytes frame not None, uint32_t rounds):
    """Walk `frame` `rounds` times; return the number of messages of the last round, or the negated fault."""
    cdef _walk.SendCall call
    cdef const unsigned char* p = frame
    cdef size_t n = len(frame)
    cdef uint32_t i
    cdef int fault = 0
    with nogil:
        for i in range(rounds):
            fault |= _walk.walk_send(p, n, &call, messages, 1000, _walk.BODY_BYTES_MAX_DEFAULT)
    return -fault if fault else call.message_count
