# cython: language_level=3, boundscheck=False, wraparound=False
"""A slave's connection to its master in the reactor, while it follows: no greenlet between a frame and the log.

Reference: `MasterLink._read_frames`.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from common.net._connection cimport Connection
from common.net._frames cimport PROTOCOL_LINK
from common.net._reactor cimport TurnEnd, reactor_of
from engine.link.constants cimport CODE_OK, FRAME_HEADER_SIZE, FRAME_REST_SIZE, OP_BYTES, OP_STORED
from engine.replication._following cimport Following

from common.net.limits import Limits
from engine.link.frame import FRAME_BYTES_MAX

cdef enum:
    STORED_SIZE = 20                     # u32 epoch, u64 end, u64 synced

LIMITS = Limits(frame_bytes_max=FRAME_BYTES_MAX, output_bytes_max=1 << 40)


cdef class Tell(TurnEnd):
    """Lets the slave tell what it has, at the end of a turn in which it took frames."""

    cdef FrameLink link

    cdef int turn_end(self) except -1:
        return 0 if self.link is None else self.link.tell()


cdef class FrameLink(Connection):
    """Owns the socket's descriptor. An exception of a function ends the connection, and is passed to `on_down`.

    Args:
        on_frame: called as (operation, code, payload bytes); returns what to send now.
        on_turn: called at the end of each turn that brought frames; returns what to send.
        on_down: called once, with the exception or None.
        now_ms: the monotonic clock.
        following: takes frames of bytes and tells what there is, in place of the two functions; None: they do all.
    Attributes:
        frames: number of frames so far.
    """

    cdef object take
    cdef object on_turn
    cdef object on_down
    cdef object error
    cdef object now_ms
    cdef Following following
    cdef Tell teller
    cdef readonly uint64_t frames

    def __init__(self, sock, str peer, on_frame, on_turn, on_down, now_ms, following):
        self.take, self.on_turn, self.on_down, self.now_ms = on_frame, on_turn, on_down, now_ms
        self.following = following if isinstance(following, Following) else None
        self.teller = Tell.__new__(Tell)
        self.teller.link = self
        sock.setblocking(False)
        Connection.__init__(self, sock.detach(), LIMITS, peer, PROTOCOL_LINK)

    def begin(self, bytes data):
        """Take bytes that were received before."""
        self.feed(data, len(data))

    cdef int on_frame(self, const unsigned char* frame, Py_ssize_t size) except -1:
        cdef uint16_t code
        if size < FRAME_REST_SIZE:
            return self.shut("not a link frame")
        memcpy(&code, frame + 2, 2)
        self.frames += 1
        try:
            if frame[0] == OP_BYTES and code == CODE_OK and self.following is not None:
                if self.following.take(frame + FRAME_REST_SIZE, size - FRAME_REST_SIZE, self.now_ms()):
                    return reactor_of().at_turn_end(self.teller)
            answer = self.take(frame[0], code, frame[FRAME_REST_SIZE:size])
        except Exception as error:
            return self.fail(error)
        if answer:
            self.send(answer)
        return reactor_of().at_turn_end(self.teller)

    cdef int tell(self) except -1:
        if self.is_closed:
            return 0
        try:
            if self.following is not None and not self.following.is_over:
                return self.tell_stored() if self.following.has_news(self.now_ms()) else 0
            told = self.on_turn()
        except Exception as error:
            return self.fail(error)
        if told:
            self.send(told)
        return 0

    cdef int tell_stored(self) except -1:
        """Queue the STORED that the following has noted as told."""
        cdef unsigned char* out = self.out_reserve(FRAME_HEADER_SIZE + STORED_SIZE)
        cdef uint32_t rest = FRAME_REST_SIZE + STORED_SIZE
        memset(out, 0, FRAME_HEADER_SIZE)
        memcpy(out, &rest, 4)
        out[4] = OP_STORED
        memcpy(out + FRAME_HEADER_SIZE, &self.following.epoch, 4)
        memcpy(out + FRAME_HEADER_SIZE + 4, &self.following.reported_end, 8)
        memcpy(out + FRAME_HEADER_SIZE + 12, &self.following.reported_synced, 8)
        return self.out_commit(FRAME_HEADER_SIZE + STORED_SIZE)

    cdef int fail(self, error) except -1:
        self.error = error
        return self.shut(str(error))

    cdef int on_closed(self) except -1:
        self.teller.link = None
        self.on_down(self.error)
        return Connection.on_closed(self)
