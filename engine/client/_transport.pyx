# cython: language_level=3, boundscheck=False, wraparound=False
"""Transport of one link in the reactor: requests leave at the end of a loop turn, answers are passed on at once.

Reference: transport.py.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

import logging

from common.limited_log import LimitedLog
from common.net._connection cimport Connection
from common.net._frames cimport PROTOCOL_LINK
from common.net._reactor cimport TurnEnd

from engine.link.constants cimport FRAME_HEADER_SIZE, FRAME_REST_SIZE, OP_PULL, OP_READ, OP_WINDOW

from common.net.limits import Limits
from engine.link.frame import FRAME_BYTES_MAX, UNASKED

limited = LimitedLog(logging.getLogger("penstock.engine.client"))
LIMITS = Limits(frame_bytes_max=FRAME_BYTES_MAX, output_bytes_max=1 << 40)

cdef enum:
    WINDOW_STEP = 1 << 20         # least change of the limit that is told


cdef class WindowWatcher(TurnEnd):
    """Lets a link look at its window after each turn, in which answers came or left."""

    cdef Transport transport

    cdef int turn_end(self) except -1:
        return 0 if self.transport is None else self.transport.tell_window()


cdef class Transport(Connection):
    """One authenticated link. Owns the descriptor.

    Args:
        on_answer: called as (request id, code, payload bytes).
        on_down: called once when the connection has closed.
    """

    cdef object on_answer
    cdef object on_down
    cdef uint64_t window             # bytes of answers that all links of this process may have outstanding; 0: any number
    cdef uint32_t links              # that share them
    cdef uint64_t received           # position of the next answer with messages
    cdef uint64_t told               # the limit that the engine knows
    cdef WindowWatcher watcher

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
        if frame[0] == OP_PULL or frame[0] == OP_READ:
            self.received += <uint64_t>size + 4
        try:
            self.on_answer(request_id, code, frame[FRAME_REST_SIZE:size])
        except Exception:
            limited.exception("engine=%s: the callback of an answer failed", self.peer)
        return 0

    def share_window(self, uint64_t window, uint32_t links):
        """Take answers with messages while less than `window` bytes of answers wait for clients; `links` share them."""
        self.window, self.links = window, links
        if self.watcher is None and not self.is_closed:
            self.watcher = WindowWatcher.__new__(WindowWatcher)
            self.watcher.transport = self
            self.reactor.watch_turns(self.watcher)
        self.tell_window()

    cdef int tell_window(self) except -1:
        """Tell the engine up to which position it may send answers, when that has changed by enough."""
        cdef uint64_t used = self.reactor.out_bytes
        cdef uint64_t limit = self.received + ((self.window - used) // self.links if used < self.window else 0)
        if limit < self.told + WINDOW_STEP or self.is_closed:
            return 0
        self.told = limit
        self.post(OP_WINDOW, UNASKED, (<unsigned char*>&limit)[:sizeof(limit)])
        return 0

    cdef int on_closed(self) except -1:
        if self.watcher is not None:
            self.reactor.unwatch_turns(self.watcher)
            self.watcher.transport = None
            self.watcher = None
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
