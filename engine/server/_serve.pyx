# cython: language_level=3, boundscheck=False, wraparound=False
"""The link server's hot half: APPEND in C.

Frames are staged as they arrive, written once at the end of the loop turn, then answered.

All other requests wait for the end of the turn, too, and run in Python after the write. A pull that found its queue
empty and armed the log's watch while an append was staged, but not yet written, would not be woken by that append.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

import logging
from collections import deque

from common.limited_log import LimitedLog
from common.net._buffer cimport held
from common.net._connection cimport Connection
from common.net._frames cimport PROTOCOL_LINK
from common.net._reactor cimport Reactor, TurnEnd, reactor_of
from engine.env._clock cimport NodeClock
from engine.env._durations cimport Durations
from engine.link.constants cimport (
    APPEND_HEAD_SIZE,
    APPEND_RESULT_SIZE,
    BATCH_HEADER_SIZE,
    CODE_INVALID,
    CODE_OK,
    DURABILITY_MAX,
    DURABILITY_MEMORY,
    DURABILITY_REPLICATED,
    DURABILITY_REPLICATED_FSYNC,
    FRAME_HEADER_SIZE,
    FRAME_REST_SIZE,
    OP_APPEND,
    OP_PULL,
    OP_READ,
    OP_STORED,
)
from engine.log.write._append cimport Appender

from common.net import limits
from engine.errors import EngineError
from engine.link import layout
from engine.ops.append import COUNT_RULE, HEAD_RULE
from engine.link.errors import PayloadError
from engine.ops.output_hold import hold_of

cdef enum:
    APPEND_END_SIZE = 8           # the log's end, after the results of an answer
    STORED_SIZE = 20              # u32 epoch, u64 end, u64 synced
    REQUESTS_NS = 100_000         # time limit for requests per turn
    UNSENT_MAX = 1 << 20          # output of a link above which only small answers are added: the next one waits for all of it

cdef size_t FRAME_BYTES_MAX = layout.FRAME_BYTES_MAX, STRANGER_BYTES_MAX = layout.STRANGER_BYTES_MAX

log = LimitedLog(logging.getLogger("penstock.engine"))


cdef inline uint32_t get32(const unsigned char* p) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, p, 4)
    return value


cdef class Staged:
    """One APPEND between its arrival and its answer."""

    cdef LinkConnection connection
    cdef uint32_t request_id
    cdef uint32_t count
    cdef bint durable
    cdef bint everywhere          # waits for the disks of all members
    cdef unsigned char* results

    def __dealloc__(self):
        free(self.results)

    cdef int answer(self) except -1:
        """Queue the results and the log's end."""
        cdef size_t results = APPEND_RESULT_SIZE * <size_t>self.count
        cdef Py_ssize_t size = FRAME_HEADER_SIZE + results + APPEND_END_SIZE
        cdef uint64_t end_position = self.connection.turn.appender.end_position
        cdef unsigned char* out
        if self.connection.is_closed:
            return 0
        out = self.connection.out_reserve(size)
        put_header(out, size, OP_APPEND, CODE_OK, self.request_id)
        memcpy(out + FRAME_HEADER_SIZE, self.results, results)
        memcpy(out + FRAME_HEADER_SIZE + results, &end_position, APPEND_END_SIZE)
        return self.connection.out_commit(size)


cdef inline void put_header(unsigned char* out, Py_ssize_t size, int op, int code, uint32_t request_id) noexcept nogil:
    cdef uint32_t rest = <uint32_t>(size - 4)
    memset(out, 0, FRAME_HEADER_SIZE)
    memcpy(out, &rest, 4)
    out[4] = op
    out[6] = code & 255
    out[7] = code >> 8
    memcpy(out + 8, &request_id, 4)


cdef class SyncedAnswers:
    """The answers that wait for one sync; called when it is done."""

    cdef Turn turn
    cdef list staged
    cdef int64_t began_ns

    def __call__(self):
        cdef Staged each
        for each in self.staged:
            each.connection.unsynced -= 1
            each.answer()
        self.turn.times.since(self.turn.clock, self.began_ns, len(self.staged))


cdef class Turn(TurnEnd):
    """The APPENDs and requests of one loop turn, of all connections of one server to one node.

    Links of slaves and controllers stay with theirs when another node serves. There are several over one log then, which
    end in any order: each writes for itself what it has staged, and only that of the node that serves wakes pulls.
    """

    cdef object node, stored
    cdef Appender appender
    cdef NodeClock clock
    cdef Durations times          # from a turn's first APPEND to the answers
    cdef int64_t began_ns
    cdef list staged
    cdef object requests          # a deque
    cdef list roomy               # connections that have sent most of their output
    cdef bint has_staged          # since the last commit, also what was refused meanwhile
    cdef public bint is_over      # another node serves
    cdef readonly uint64_t appends, batches, messages, bytes

    def __init__(self, node):
        self.node, self.stored, self.appender, self.clock = node, node.stored, node.store.appender, node.clock
        self.times = Durations() if node.append is None else node.append.times  # a standby appends nothing
        self.staged, self.requests, self.roomy = [], deque(), []

    cdef int stage(self, LinkConnection connection, uint32_t request_id, const unsigned char* payload, Py_ssize_t size) except -1:
        cdef Staged staged
        cdef uint32_t count
        if size < APPEND_HEAD_SIZE or not DURABILITY_MEMORY <= payload[0] <= DURABILITY_MAX:
            connection.refuse(OP_APPEND, request_id, CODE_INVALID, HEAD_RULE.encode())
            return 0
        count = get32(payload + 4)
        # Bounds the allocation below: each batch that is announced takes at least its header.
        if count == 0 or <uint64_t>count * BATCH_HEADER_SIZE > <uint64_t>(size - APPEND_HEAD_SIZE):
            connection.refuse(OP_APPEND, request_id, CODE_INVALID, COUNT_RULE.encode())
            return 0
        staged = Staged.__new__(Staged)
        staged.connection, staged.request_id, staged.count = connection, request_id, count
        # Answers to the APPENDs of one connection keep their order, so an answer also waits for the sync of an earlier
        # one.
        staged.durable = connection.unsynced > 0 or not (
            payload[0] == DURABILITY_MEMORY or (payload[0] == DURABILITY_REPLICATED and self.stored.is_replicated)
        )
        staged.everywhere = payload[0] == DURABILITY_REPLICATED_FSYNC
        staged.results = <unsigned char*>malloc(APPEND_RESULT_SIZE * <size_t>count)
        if staged.results == NULL:
            raise MemoryError()
        if staged.durable:
            connection.unsynced += 1
        if not self.staged:
            self.began_ns = self.clock.monotonic_ns()
        self.staged.append(staged)
        self.has_staged = True
        reactor_of().at_turn_end(self)
        try:
            self.appender.stage_frame(
                payload + APPEND_HEAD_SIZE, size - APPEND_HEAD_SIZE, count, self.clock.wall_ms(), staged.results
            )
        except EngineError as error:
            self.refuse_all(error)
            return 0
        self.count(payload + APPEND_HEAD_SIZE, size - APPEND_HEAD_SIZE, count, staged.results)
        return 0

    cdef int count(self, const unsigned char* batches, Py_ssize_t left, uint32_t count, const unsigned char* results) except -1:
        """Add the stored batches to the totals.

        `results` has `count` entries; `left` bounds every read of `batches`.
        """
        cdef uint32_t i
        cdef Py_ssize_t size
        self.appends += 1
        for i in range(count):
            size = get32(batches + 4) if left >= BATCH_HEADER_SIZE else 0
            if size < BATCH_HEADER_SIZE or size > left:
                break                 # the appender stopped here, too
            if not (results[APPEND_RESULT_SIZE * <size_t>i] or results[APPEND_RESULT_SIZE * <size_t>i + 1]):
                self.batches += 1
                self.messages += get32(batches + 24)
                self.bytes += size
            size = (size + 7) & ~<Py_ssize_t>7
            batches += size
            left -= size
        return 0

    cdef int refuse_all(self, error) except -1:
        """The write was refused, and with it all APPENDs of this turn."""
        cdef Staged each
        sentence = str(error).encode()
        staged, self.staged = self.staged, []
        for each in staged:
            if each.durable:
                each.connection.unsynced -= 1
            each.connection.refuse(OP_APPEND, each.request_id, error.code, sentence)
        log.warning("APPEND refused: %s", error)
        return 0

    cdef int turn_end(self) except -1:
        cdef Staged each
        cdef SyncedAnswers durable = None
        cdef bint everywhere = False
        cdef Py_ssize_t at_once = 0
        try:
            if self.has_staged:
                self.has_staged = False
                self.appender.commit()
        except EngineError as error:
            self.refuse_all(error)
        staged, self.staged = self.staged, []
        for each in staged:
            if each.durable:
                if durable is None:
                    durable = SyncedAnswers.__new__(SyncedAnswers)
                    durable.turn, durable.staged, durable.began_ns = self, [], self.began_ns
                durable.staged.append(each)
                everywhere = everywhere or each.everywhere
        if durable is not None:
            self.stored.when(self.appender.end_position, durable, everywhere)
        if staged:
            # Outputs are written in this order: a message that a pull waits for leaves before the answer to its
            # producer.
            try:
                self.wake()
            except Exception:
                log.exception("waking pulls failed")  # the producers are still answered
        for each in staged:
            if not each.durable:
                each.answer()
                at_once += 1
        if at_once:
            self.times.since(self.clock, self.began_ns, at_once)
        if self.requests:
            self.run_requests()
        if self.roomy:
            roomy, self.roomy = self.roomy, []
            for connection in roomy:
                if not (<LinkConnection>connection).is_closed:
                    self.node.on_room(connection)
        return self.wake()  # a request may have appended, too

    cdef int wake(self) except -1:
        if self.is_over:
            return 0  # the pulls are those of another node
        if woken := self.appender.take_woken():
            self.node.on_appended(woken)
        return 0

    cdef int run_requests(self) except -1:
        """Serve requests for a limited time. APPENDs that arrive meanwhile are written before the rest of them."""
        cdef Reactor reactor = reactor_of()
        reactor.flush_dirty()  # answers of APPENDs do not wait for pulls
        cdef int64_t until = self.clock.monotonic_ns() + REQUESTS_NS
        while self.requests:
            connection, op, request_id, payload = self.requests.popleft()
            if (<LinkConnection>connection).writing and held(&(<LinkConnection>connection).out) > <size_t>limits.UNREAD_BYTES_MAX:
                (<LinkConnection>connection).shut("does not read its answers")
            if not (<LinkConnection>connection).is_closed:
                self.node.on_request(connection, op, request_id, payload)
            if self.requests and self.clock.monotonic_ns() > until:
                return reactor.at_next_turn(self)
        return 0


cdef class LinkConnection(Connection):
    """One link; a `Peer` of the node. Owns the descriptor."""

    cdef Turn turn
    cdef object node
    cdef bint authenticated, may_append
    cdef uint32_t unsynced
    cdef public object peer_state
    cdef object window             # of the peer_state
    cdef object output_hold        # an OutputHold; None: output leaves at once
    cdef uint64_t noted            # position up to which `output_hold` knows the output

    def __init__(self, int fd, limits, str peer, Turn turn, node):
        self.turn, self.node = turn, node
        Connection.__init__(self, fd, limits, peer, PROTOCOL_LINK)
        self.frame_max = STRANGER_BYTES_MAX
        self.peer_state = node.on_connected(self)
        self.window = self.peer_state.window

    cdef int on_frame(self, const unsigned char* frame, Py_ssize_t size) except -1:
        if size < FRAME_REST_SIZE:
            return self.shut("not a link frame")
        cdef uint32_t request_id = get32(frame + 4)
        if not self.authenticated:
            self.node.on_request(self, frame[0], request_id, frame[FRAME_REST_SIZE:size])
            return 0
        if frame[0] == OP_APPEND and self.may_append:
            return self.turn.stage(self, request_id, frame + FRAME_REST_SIZE, size - FRAME_REST_SIZE)
        if frame[0] == OP_STORED and size == FRAME_REST_SIZE + STORED_SIZE and self.took_stored(frame + FRAME_REST_SIZE):
            return 0
        self.turn.requests.append((self, frame[0], request_id, frame[FRAME_REST_SIZE:size]))
        return reactor_of().at_turn_end(self.turn)

    cdef bint took_stored(self, const unsigned char* payload) except -1:
        """Pass on what a slave has told, before the turn's end: what it confirms leaves in this turn, too.

        What is wrong with a STORED, the operation finds again and says.
        """
        cdef uint64_t end, synced
        on_stored = self.peer_state.on_stored
        if on_stored is None:
            return False
        memcpy(&end, payload + 4, 8)
        memcpy(&synced, payload + 12, 8)
        if synced > end:
            return False
        try:
            on_stored(get32(payload), end, synced)
        except PayloadError:
            return False
        except Exception:
            log.exception("what a slave has stored could not be taken")
            return False
        return True

    cdef int flush(self) except -1:
        # Only new output is noted: otherwise a slow reader of a long output would make an entry per turn.
        if self.output_hold is not None and self.noted < self.queued and not self.is_closed:
            self.noted = self.queued
            if self.output_hold.note(self, self.queued):
                self.sendable = self.queued
        return Connection.flush(self)

    cdef bint owes(self) noexcept:
        return self.unsynced > 0

    cdef int on_closed(self) except -1:
        self.node.on_closed(self)
        return Connection.on_closed(self)

    cdef int on_room(self) except -1:
        """Most of the output was sent: large answers may be added again, after the requests that came meanwhile."""
        self.window.is_full = False
        self.turn.roomy.append(self)
        return self.reactor.at_next_turn(self.turn)

    cdef int count_messages(self, Py_ssize_t size) except -1:
        """Count an answer with messages against the link's window."""
        self.window.sent += size
        if not self.room_below and held(&self.out) > UNSENT_MAX:
            self.window.is_full = True
            self.room_below = UNSENT_MAX // 2
        return 0

    cdef int refuse(self, int op, uint32_t request_id, int code, bytes sentence) except -1:
        self.send_frame(op, request_id, code, [sentence])
        return 0

    cpdef trust(self):
        """Accept all operations, and frames of full size. The output so far is not held: it shows nothing of the log."""
        self.authenticated, self.may_append = True, OP_APPEND in self.peer_state.operations
        if self.on_trust is not None:
            self.on_trust(self, True)
        self.frame_max = FRAME_BYTES_MAX
        self.output_hold = hold_of(self.node.output_hold, self.peer_state)
        if self.output_hold is not None:
            self.noted = self.queued
            self.hold_output()

    def send_frame(self, int op, uint32_t request_id, int code, list parts):
        """Queue one frame whose payload is the parts in order; it leaves at the end of the loop turn."""
        cdef Py_ssize_t size = FRAME_HEADER_SIZE
        cdef bytes part
        cdef unsigned char* out
        if self.is_closed:
            return
        for part in parts:
            size += len(part)
        out = self.out_reserve(size)
        put_header(out, size, op, code, request_id)
        out += FRAME_HEADER_SIZE
        for part in parts:
            memcpy(out, <const unsigned char*>part, len(part))
            out += len(part)
        self.out_commit(size)
        if op == OP_PULL or op == OP_READ:
            self.count_messages(size)
