# cython: language_level=3, boundscheck=False, wraparound=False
"""The link server's hot half: APPENDs are staged in C as they come, written once at the end of the loop turn, then answered.

All other requests wait for the end of the turn too and run in Python behind the write: a pull that found its queue empty and armed
the log's watch while an append was staged but not yet written would sleep through it.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

import logging
from collections import deque

from common.net._connection cimport Connection
from common.net._frames cimport PROTOCOL_LINK
from common.net._reactor cimport Reactor, TurnEnd, reactor_of
from engine.log.write._append cimport Appender

from engine.errors import EngineError
from engine.link import layout

cdef extern from "<time.h>" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    int CLOCK_REALTIME
    int CLOCK_MONOTONIC

cdef enum:
    HEADER_SIZE = 16
    REST = 12                     # of the header, behind the size field
    APPEND_HEAD = 8
    RESULT_SIZE = 16
    BATCH_HEADER = 48
    OP_APPEND = 10
    MEMORY = 1
    DURABILITY_MAX = 4
    CODE_INVALID = 100
    REQUESTS_NS = 100_000         # of one turn

cdef size_t FRAME_BYTES_MAX = layout.FRAME_BYTES_MAX
cdef size_t STRANGER_BYTES_MAX = layout.STRANGER_BYTES_MAX

log = logging.getLogger("penstock.engine")


cdef inline uint32_t get32(const unsigned char* p) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, p, 4)
    return value


cdef inline int64_t wall_ms() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return <int64_t>t.tv_sec * 1000 + t.tv_nsec // 1000000


cdef inline int64_t monotonic_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t>t.tv_sec * 1000000000 + t.tv_nsec


cdef class Staged:
    """One APPEND between its arrival and its answer."""

    cdef LinkConnection connection
    cdef uint32_t request_id
    cdef uint32_t count
    cdef bint durable
    cdef unsigned char* results

    def __dealloc__(self):
        free(self.results)

    cdef int answer(self) except -1:
        cdef Py_ssize_t size = HEADER_SIZE + RESULT_SIZE * <Py_ssize_t>self.count
        cdef unsigned char* out
        if self.connection.is_closed:
            return 0
        out = self.connection.out_reserve(size)
        put_header(out, size, OP_APPEND, 0, self.request_id)
        memcpy(out + HEADER_SIZE, self.results, RESULT_SIZE * <size_t>self.count)
        return self.connection.out_commit(size)


cdef inline void put_header(unsigned char* out, Py_ssize_t size, int op, int code, uint32_t request_id) noexcept nogil:
    cdef uint32_t rest = <uint32_t>(size - 4)
    memset(out, 0, HEADER_SIZE)
    memcpy(out, &rest, 4)
    out[4] = op
    out[6] = code & 255
    out[7] = code >> 8
    memcpy(out + 8, &request_id, 4)


cdef class Durable:
    """The answers that wait for one sync."""

    cdef list staged

    def __call__(self):
        cdef Staged each
        for each in self.staged:
            each.connection.unsynced -= 1
            each.answer()


cdef class Turn(TurnEnd):
    """What one loop turn has brought, for all connections of one server."""

    cdef object store, service
    cdef Appender appender
    cdef list staged
    cdef object requests          # a deque
    cdef readonly uint64_t appends, batches, messages, bytes

    def __init__(self, store, service):
        self.store, self.service, self.appender = store, service, store.appender
        self.staged, self.requests = [], deque()

    cdef int stage(self, LinkConnection connection, uint32_t request_id, const unsigned char* payload, Py_ssize_t size) except -1:
        cdef Staged staged
        cdef uint32_t count
        if size < APPEND_HEAD or not 1 <= payload[0] <= DURABILITY_MAX:
            connection.refuse(OP_APPEND, request_id, CODE_INVALID, b"APPEND: durability 1..4, then the batches")
            return 0
        count = get32(payload + 4)
        if count == 0 or <uint64_t>count * BATCH_HEADER > <uint64_t>(size - APPEND_HEAD):
            connection.refuse(OP_APPEND, request_id, CODE_INVALID, b"APPEND: no batches, or more than bytes")
            return 0
        staged = Staged.__new__(Staged)
        staged.connection, staged.request_id, staged.count = connection, request_id, count
        # Answers to the APPENDs of one connection keep their order, so one behind a sync waits for the sync.
        staged.durable = payload[0] != MEMORY or connection.unsynced > 0
        staged.results = <unsigned char*>malloc(RESULT_SIZE * <size_t>count)
        if staged.results == NULL:
            raise MemoryError()
        if staged.durable:
            connection.unsynced += 1
        self.staged.append(staged)
        reactor_of().at_turn_end(self)
        try:
            self.appender.stage_frame(payload + APPEND_HEAD, size - APPEND_HEAD, count, wall_ms(), staged.results)
        except EngineError as error:
            self.refuse_all(error)
            return 0
        self.count(payload + APPEND_HEAD, size - APPEND_HEAD, count, staged.results)
        return 0

    cdef int count(self, const unsigned char* batches, Py_ssize_t left, uint32_t count, const unsigned char* results) except -1:
        cdef uint32_t i
        cdef Py_ssize_t size
        self.appends += 1
        for i in range(count):
            size = get32(batches + 4) if left >= BATCH_HEADER else 0
            if size < BATCH_HEADER or size > left:
                break                 # nothing behind it was taken
            if not (results[RESULT_SIZE * <size_t>i] or results[RESULT_SIZE * <size_t>i + 1]):
                self.batches += 1
                self.messages += get32(batches + 24)
                self.bytes += size
            size = (size + 7) & ~<Py_ssize_t>7
            batches += size
            left -= size
        return 0

    cdef int refuse_all(self, error) except -1:
        """The write was refused, and with it everything of this turn."""
        cdef Staged each
        sentence = str(error).encode()
        log.warning("append refused: %s", error)
        staged, self.staged = self.staged, []
        for each in staged:
            if each.durable:
                each.connection.unsynced -= 1
            each.connection.refuse(OP_APPEND, each.request_id, error.code, sentence)
        return 0

    cdef int turn_end(self) except -1:
        cdef Staged each
        cdef Durable durable = None
        try:
            self.appender.commit()
        except EngineError as error:
            self.refuse_all(error)
        staged, self.staged = self.staged, []
        for each in staged:
            if each.durable:
                if durable is None:
                    durable = Durable.__new__(Durable)
                    durable.staged = []
                durable.staged.append(each)
        if durable is not None:
            self.store.when_durable(self.appender.end_position, durable)
        if staged:
            # Outputs are written in this order: a message that was waited for leaves before the word that it is stored.
            try:
                self.service.on_appended(self.appender.take_woken())
            except Exception:
                log.exception("serving those who waited for records failed")  # who has stored them is answered all the same
        for each in staged:
            if not each.durable:
                each.answer()
        if self.requests:
            self.run_requests()
        self.service.on_appended(self.appender.take_woken())  # by a verb
        return 0

    cdef int run_requests(self) except -1:
        """All but APPENDs, as many as there is time for: appends that come meanwhile go before the others."""
        cdef Reactor reactor = reactor_of()
        cdef int64_t until
        reactor.flush_dirty()  # who has appended does not wait for those who pull
        until = monotonic_ns() + REQUESTS_NS
        while self.requests:
            connection, op, request_id, payload = self.requests.popleft()
            if not (<LinkConnection>connection).is_closed:
                self.service.on_request(connection, op, request_id, payload)
            if self.requests and monotonic_ns() > until:
                return reactor.at_next_turn(self)
        return 0


cdef class LinkConnection(Connection):
    """One link. Owns the descriptor."""

    cdef Turn turn
    cdef object service
    cdef bint authenticated
    cdef uint32_t unsynced
    cdef public object peer_state

    def __init__(self, int fd, limits, str peer, Turn turn, service):
        self.turn, self.service = turn, service
        Connection.__init__(self, fd, limits, peer, PROTOCOL_LINK)
        self.frame_max = STRANGER_BYTES_MAX
        self.peer_state = service.new_peer(self)

    cdef int on_frame(self, const unsigned char* frame, Py_ssize_t size) except -1:
        cdef uint32_t request_id
        if size < REST:
            return self.shut("not a link frame")
        request_id = get32(frame + 4)
        if not self.authenticated:
            self.service.on_request(self, frame[0], request_id, frame[REST:size])
            return 0
        if frame[0] == OP_APPEND:
            return self.turn.stage(self, request_id, frame + REST, size - REST)
        self.turn.requests.append((self, frame[0], request_id, frame[REST:size]))
        return reactor_of().at_turn_end(self.turn)

    cdef bint owes(self) noexcept:
        return self.unsynced > 0

    cdef int on_closed(self) except -1:
        self.service.on_closed(self)
        return Connection.on_closed(self)

    cdef int refuse(self, int op, uint32_t request_id, int code, bytes sentence) except -1:
        self.send_frame(op, request_id, code, [sentence])
        return 0

    def trust(self):
        """The other end has proved itself: all operations, and frames of full size."""
        self.authenticated = True
        self.frame_max = FRAME_BYTES_MAX

    def send_frame(self, int op, uint32_t request_id, int code, list parts):
        """Queue one frame whose payload is the parts, one behind the other; it leaves at the end of the loop turn."""
        cdef Py_ssize_t size = HEADER_SIZE
        cdef bytes part
        cdef unsigned char* out
        if self.is_closed:
            return
        for part in parts:
            size += len(part)
        out = self.out_reserve(size)
        put_header(out, size, op, code, request_id)
        out += HEADER_SIZE
        for part in parts:
            memcpy(out, <const unsigned char*>part, len(part))
            out += len(part)
        self.out_commit(size)
