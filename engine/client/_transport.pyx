# cython: language_level=3, boundscheck=False, wraparound=False
"""Transport of one link in the reactor: requests leave at the end of a loop turn, answers are passed on at once.

Reference: transport.py.
"""

from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcpy, memset

import logging

from common.net._connection cimport Connection
from common.net._frames cimport PROTOCOL_LINK

from engine.link.constants cimport FRAME_HEADER_SIZE, FRAME_REST_SIZE

from common.net.limits import Limits
from engine.link.frame import FRAME_BYTES_MAX

log = logging.getLogger("penstock.engine.client")
LIMITS = Limits(frame_bytes_max=FRAME_BYTES_MAX)


cdef class Transport(Connection):
    """One authenticated link. Owns the descriptor.

    Args:
        on_answer: called as (request id, code, payload bytes).
        on_down: called once when the connection has closed.
    """

    cdef object on_answer
    cdef object on_down

    def __init__(self, sock, str peer, on_answer, on_down):
        self.on_answer, self.on_down = on_answer, on_down
        sock.setblocking(False)
        Connection.__init__(self, sock.detach(), LIMITS, peer, PROTOCOL_LINK)

    cdef int on_frame(self, const unsigned char* frame, Py_ssize_t size) except -1:
        cdef uint16_t code
        cdef uint32_t request_id
        # The reactor passes a whole frame without its size field: `size` bytes of header rest and payload.
        if size < FRAME_REST_SIZE:
            return self.shut("not a link frame")
        memcpy(&code, frame + 2, 2)
        memcpy(&request_id, frame + 4, 4)
        try:
            self.on_answer(request_id, code, frame[FRAME_REST_SIZE:size])
        except Exception:
            log.exception("engine=%s: the callback of an answer failed", self.peer)
        return 0

    cdef int on_closed(self) except -1:
        self.on_down()
        return Connection.on_closed(self)

    def post(self, int op, uint32_t request_id, bytes payload):
        """Queue one request."""
        cdef Py_ssize_t size = FRAME_HEADER_SIZE + len(payload)
        cdef uint32_t rest = <uint32_t>(size - 4)
        cdef unsigned char* out
        if self.is_closed:
            return
        out = self.out_reserve(size)
        memset(out, 0, FRAME_HEADER_SIZE)
        memcpy(out, &rest, 4)
        out[4] = op
        memcpy(out + 8, &request_id, 4)
        memcpy(out + FRAME_HEADER_SIZE, <const unsigned char*>payload, len(payload))
        self.out_commit(size)
