"""The load loop: one thread, one epoll set, no GIL between phase changes.

Phases: warm-up → window → drain. Only calls that begin in the window count; drain takes in what is still in flight
(and, in open loop, sends what was planned in the window), lets consumers deliver their last acknowledgements, and ends.
A fault (closed connection, broken answer, exception, no answer in time) ends the run at once with a sentence.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, itimerspec, timespec
from posix.unistd cimport close

from bench._answers cimport (
    ANSWER, BROKEN, CODES, EXCEPTION, Kind, PullNotes, PullTally, SendTally, walk_pull_answer, walk_send_answer,
)
from bench._connection cimport (
    CLOSED, NO_MEMORY, PARTLY, WHOLE, Connection, Received, flush, receive, release, watch, watch_writes,
)
from bench._histogram cimport Histogram, record
from bench._requests cimport PullFrames, SendFrames
from bench._schedule cimport Schedule, advance, due_ns

cdef extern from "sys/timerfd.h" nogil:
    int TFD_TIMER_ABSTIME, TFD_NONBLOCK, TFD_CLOEXEC
    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec* new_value, itimerspec* old_value)

cdef extern from "sys/epoll.h" nogil:
    int EPOLL_CTL_ADD, EPOLL_CLOEXEC
    unsigned int EPOLLIN, EPOLLOUT, EPOLLET
    ctypedef union epoll_data_t:
        unsigned int u32
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int count, int timeout_ms)

cdef enum:
    EVENTS = 256
    TIMER = 0xFFFFFFFF                 # the timer's number in an event; connections have their index

cdef int64_t TICK_NS = 250000000           # interval of checks for signals, stale credentials and overdue calls
cdef int64_t CREDENTIAL_NS = 60000000000

cdef enum Phase:
    WARM_UP = 0
    WINDOW = 1
    DRAIN = 2

cdef dict FAULTS = {
    "closed": "closed by the server",
    "broken": "the answer is not one to this call (framing, name, sequence number or types)",
    "exception": "answered by an exception",
    "count": "the answer has another number of results than the call had messages",
    "late": "no answer in time",
    "memory": "out of memory",
    "refused": "a whole pull was refused",
}


cdef inline int64_t _now() noexcept nogil:
    cdef timespec at
    clock_gettime(CLOCK_MONOTONIC, &at)
    return <int64_t>at.tv_sec * 1000000000 + at.tv_nsec


cdef class Load:
    """One run over connected sockets.

    Args:
        producers, consumers: connected non-blocking sockets; the caller keeps and closes them.
        send, pull: writers of the frames; None when there are no such connections.
        mint: returns a fresh encoded Credential; called before the start and every 60 s.
        on_window: called with True as the window opens and False as it closes, in this thread, outside the window.
        batch: messages per call. rate: messages per second, 0 for a closed loop.
        messages_max: send that many and end (0: no limit). deliveries_max: pull that many and end.
        drain: a consumer ends with its first empty answer; without, it pulls until the window closes.
        acknowledge: consumers acknowledge each delivery on their next pull.
        timeout_s: a call without an answer for so long is a fault; long polls get their wait on top.
    """

    cdef SendFrames send
    cdef PullFrames pull
    cdef object mint, on_window
    cdef list _sockets
    cdef Connection* connections
    cdef int count, producer_count, epoll, timer
    cdef int* idle                     # ring of free producer connections, open loop only
    cdef int idle_first, idle_count
    cdef uint32_t batch
    cdef Schedule schedule
    cdef bint drain, acknowledge
    cdef uint64_t messages_max, deliveries_max
    cdef int64_t warmup_ns, length_ns, timeout_ns, wait_ns
    # phases of the run
    cdef Phase phase
    cdef int64_t window_from, window_to, credential_at, next_tick, armed_at, last_delivery
    cdef int in_flight, consumers_left, fault_index
    cdef const char* fault_kind
    # results
    cdef SendTally sends, ignored_sends
    cdef PullTally pulls, ignored_pulls
    cdef uint64_t calls, messages, empty_pulls, sent_total, unsent
    cdef readonly Histogram latency, lag, pull_latency, end_to_end

    def __cinit__(self, *, producers=(), consumers=(), SendFrames send=None, PullFrames pull=None, mint, on_window,
                  batch=1, rate=0.0, poisson=True, seconds=10.0, warmup_s=0.0, messages_max=0, deliveries_max=0,
                  drain=False, acknowledge=True, wait_ms=0, timeout_s=10.0, seed=1):
        cdef int index
        self.send, self.pull, self.mint, self.on_window = send, pull, mint, on_window
        self._sockets = [*producers, *consumers]
        self.producer_count, self.count, self.epoll, self.timer = len(producers), len(self._sockets), -1, -1
        self.batch, self.messages_max, self.deliveries_max = batch, messages_max, deliveries_max
        self.drain, self.acknowledge = drain, acknowledge
        self.warmup_ns, self.length_ns, self.timeout_ns = int(warmup_s * 1e9), int(seconds * 1e9), int(timeout_s * 1e9)
        self.wait_ns = wait_ms * 1000000
        self.schedule.interval_ns = 1e9 * batch / rate if rate else 0.0
        self.schedule.poisson, self.schedule.random = poisson, seed * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF | 1
        self.latency, self.lag, self.pull_latency, self.end_to_end = Histogram(), Histogram(), Histogram(), Histogram()
        self.connections = <Connection*>calloc(self.count + 1, sizeof(Connection))
        self.idle = <int*>calloc(self.producer_count + 1, sizeof(int))
        if self.connections == NULL or self.idle == NULL:
            raise MemoryError
        for index in range(self.count):
            self.connections[index].fd = self._sockets[index].fileno()
            self.connections[index].pulls = index >= self.producer_count
        self.consumers_left = self.count - self.producer_count
        self.fault_index = -1

    def __dealloc__(self):
        cdef int index
        if self.connections != NULL:
            for index in range(self.count):
                release(&self.connections[index])
        free(self.connections)
        free(self.idle)
        if self.epoll >= 0:
            close(self.epoll)
        if self.timer >= 0:
            close(self.timer)

    # Python side: before, at phase changes and after

    def run(self) -> dict:
        """Run to the end and return the counts; the histograms are attributes. Blocks; Ctrl-C interrupts it."""
        self._open()
        self._refresh(_now())
        self._begin(_now())
        with nogil:
            self._loop()
        return self._result()

    cdef int _open(self) except -1:
        cdef int index
        cdef epoll_event event
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        self.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        event.events, event.data.u32 = EPOLLIN | EPOLLET, TIMER
        if self.epoll < 0 or self.timer < 0 or epoll_ctl(self.epoll, EPOLL_CTL_ADD, self.timer, &event) < 0:
            raise OSError(errno, "no epoll set or timer")
        for index in range(self.count):
            if watch(&self.connections[index], self.epoll, index) < 0:
                raise OSError(errno, "a connection cannot be watched")
        return 0

    cdef int _refresh(self, int64_t now) except -1:
        credential = self.mint()
        if self.send is not None:
            self.send.set_credential(credential)
        if self.pull is not None:
            self.pull.set_credential(credential)
        self.credential_at = now
        return 0

    cdef int _begin(self, int64_t now) except -1:
        cdef int index
        self.phase, self.next_tick = WARM_UP, now + TICK_NS
        self.window_from = now + self.warmup_ns
        self.window_to = self.window_from + self.length_ns
        self.schedule.next_ns = now
        if self.warmup_ns == 0:
            self._open_window()
        for index in range(self.count):
            if self.schedule.interval_ns and not self.connections[index].pulls:
                self._free(index, now)
            else:
                self._start(index, _now())
        return 0

    cdef int _tick(self, int64_t now) except -1 with gil:
        """Do the rare work that needs the GIL; raises KeyboardInterrupt."""
        cdef int index
        cdef int64_t patience_ns
        cdef Connection* connection
        self.next_tick = now + TICK_NS
        if now - self.credential_at > CREDENTIAL_NS:
            self._refresh(now)
        for index in range(self.count):
            connection = &self.connections[index]
            patience_ns = self.timeout_ns + (self.wait_ns if connection.pulls else 0)
            if connection.in_flight and now - connection.sent_ns > patience_ns:
                self._fail(index, b"late")
        PyErr_CheckSignals()
        return 0

    cdef int _open_window(self) except -1 with gil:
        self.on_window(True)
        self.phase = WINDOW
        self.window_from = _now()
        self.window_to = self.window_from + self.length_ns
        return 0

    cdef int _close_window(self, int64_t now) except -1 with gil:
        self.phase = DRAIN
        self.window_to = min(self.window_to, now) if self.schedule.interval_ns else now
        if self.last_delivery and self.producer_count == 0 and self._all_pulled():
            self.window_to = self.last_delivery  # detecting the end takes one more wait, which does not count
        self.on_window(False)
        return 0

    def _result(self) -> dict:
        return {
            "window_s": (self.window_to - self.window_from) / 1e9,
            "calls": self.calls, "messages": self.messages, "codes": _codes(self.sends.codes), "unsent": self.unsent,
            "sent_total": self.sent_total, "codes_outside": _codes(self.ignored_sends.codes),
            "pulls": len(self.pull_latency), "empty_pulls": self.empty_pulls, "pull_codes": _codes(self.pulls.codes),
            "deliveries": self.pulls.deliveries, "delivered_bytes": self.pulls.bytes,
            "redelivered": self.pulls.redelivered,
            "deliveries_total": self.pulls.deliveries + self.ignored_pulls.deliveries,
            "wrong_size": self.pulls.wrong_size + self.ignored_pulls.wrong_size,
            "ack_codes": _codes(self.pulls.ack_codes),
            "fault": self._fault(),
        }

    cdef object _fault(self):
        cdef Connection* connection
        if self.fault_index < 0:
            return None
        connection = &self.connections[self.fault_index]
        role = "consumer" if connection.pulls else "producer"
        number = self.fault_index - (self.producer_count if connection.pulls else 0)
        kind = self.fault_kind.decode()
        sentence = f"{role} connection {number}, call {connection.calls}: {FAULTS[kind]}"
        if kind == "refused":
            sentence += f", code {max(self.pulls.last_code, self.ignored_pulls.last_code)}"
        if kind in ("exception", "refused"):
            sentence += ": " + _printable(connection.frame.data[20:min(<int>connection.frame.size, 300)])
        return sentence

    # native side

    cdef void _fail(self, int index, const char* kind) noexcept nogil:
        if self.fault_index < 0:
            self.fault_index, self.fault_kind = index, kind

    cdef void _free(self, int index, int64_t now) noexcept nogil:
        """Append a producer connection to the free ones, so that all take turns."""
        self.idle[(self.idle_first + self.idle_count) % self.producer_count] = index
        self.idle_count += 1
        self.connections[index].freed_ns = now

    cdef void _start(self, int index, int64_t planned) noexcept nogil:
        """Write the next request of a connection; `planned` is what its latency counts from."""
        cdef Connection* connection = &self.connections[index]
        cdef int written
        connection.seqid += 1
        connection.counted_from_ns = connection.sent_ns = planned
        if connection.pulls:
            written = self.pull.write(
                &connection.out, connection.seqid, &connection.acks, connection.ack_count, connection.last_pull
            )
            connection.acks.size = connection.ack_count = 0
        else:
            connection.messages = self.batch
            if self.messages_max and self.messages_max - self.sent_total < self.batch:
                connection.messages = <uint32_t>(self.messages_max - self.sent_total)
            self.sent_total += connection.messages
            written = self.send.write(&connection.out, connection.seqid, connection.messages, planned)
        if written < 0:
            self._fail(index, b"memory")
            return
        connection.frame.size = connection.out_done = 0
        connection.in_flight = True
        connection.calls += 1
        self.in_flight += 1
        self._flush(index)

    cdef void _flush(self, int index) noexcept nogil:
        cdef int written = flush(&self.connections[index])
        if written < 0 or watch_writes(&self.connections[index], self.epoll, index, written == 0) < 0:
            self._fail(index, b"closed")

    cdef bint _may_send(self) noexcept nogil:
        return self.phase != DRAIN and (self.messages_max == 0 or self.sent_total < self.messages_max)

    cdef void _start_due(self) noexcept nogil:
        """Open loop: begin every call that is due and has a free connection."""
        cdef int64_t now, due
        cdef int index
        while self.idle_count:
            due, now = due_ns(&self.schedule), _now()
            if due > now:
                return
            if self.phase == DRAIN and (due >= self.window_to or now >= self.window_to + self.timeout_ns):
                return
            if self.messages_max and self.sent_total >= self.messages_max:
                return
            index = self.idle[self.idle_first]
            self.idle_first = (self.idle_first + 1) % self.producer_count
            self.idle_count -= 1
            if self.phase != WARM_UP and due >= self.window_from:
                record(&self.lag.counts, now - max(due, self.connections[index].freed_ns))
            advance(&self.schedule)
            self._start(index, due)
            self.connections[index].sent_ns = now

    cdef bint _counts(self, Connection* connection) noexcept nogil:
        """Whether the answered call belongs to the window. A closed loop's late answers do not."""
        if self.phase == WARM_UP or connection.counted_from_ns < self.window_from:
            return False
        return self.phase == WINDOW or (self.schedule.interval_ns != 0 and connection.counted_from_ns < self.window_to)

    cdef void _sent(self, int index) noexcept nogil:
        """Count the answer to a send and continue."""
        cdef Connection* connection = &self.connections[index]
        cdef bint counts = self._counts(connection)
        cdef SendTally* tally = &self.sends if counts else &self.ignored_sends
        cdef Kind kind = walk_send_answer(connection.frame.data + 4, connection.frame.size - 4, connection.seqid, tally)
        cdef int64_t now = _now()
        if kind != ANSWER:
            self._fail(index, b"exception" if kind == EXCEPTION else b"broken")
            return
        if tally.results != connection.messages:
            self._fail(index, b"count")
            return
        if counts:
            record(&self.latency.counts, now - connection.counted_from_ns)
            self.calls += 1
            self.messages += connection.messages
        if self.schedule.interval_ns:
            self._free(index, now)
        elif self._may_send():
            self._start(index, now)
        else:
            connection.finished = True

    cdef void _pulled(self, int index) noexcept nogil:
        """Count the answer to a pull, keep its receipts and continue."""
        cdef Connection* connection = &self.connections[index]
        cdef bint counts = self._counts(connection)
        cdef PullTally* tally = &self.pulls if counts else &self.ignored_pulls
        cdef PullNotes notes
        cdef Kind kind
        cdef int64_t now = _now()
        self._notes(connection, &notes, now)
        kind = walk_pull_answer(connection.frame.data + 4, connection.frame.size - 4, connection.seqid, tally, &notes)
        connection.ack_count = notes.ack_count
        if kind != ANSWER or tally.last_code != 0:
            self._fail(index, b"exception" if kind == EXCEPTION else b"broken" if kind == BROKEN else b"refused")
            return
        if tally.last_deliveries:
            self.last_delivery = now
        if counts and not connection.last_pull:
            record(&self.pull_latency.counts, now - connection.counted_from_ns)
            self.empty_pulls += tally.last_deliveries == 0
        self._pull_on(index, tally.last_deliveries == 0, now)

    cdef void _notes(self, Connection* connection, PullNotes* notes, int64_t now) noexcept nogil:
        notes.acks = &connection.acks if self.acknowledge else NULL
        notes.ack_count = 0
        notes.body_size = self.send.body_size if self.send is not None else -1
        notes.mark = self.send.mark if self.send is not None and self.phase == WINDOW else 0
        notes.now_ns, notes.since_ns, notes.end_to_end = now, self.window_from, &self.end_to_end.counts

    cdef void _pull_on(self, int index, bint empty, int64_t now) noexcept nogil:
        """Send a last pull, of no messages, with the remaining acknowledgements; then the consumer is done."""
        cdef Connection* connection = &self.connections[index]
        if connection.last_pull:
            connection.finished = True
        elif not (self.phase == DRAIN or self._all_pulled() or (empty and self.drain)):
            self._start(index, now)
        else:
            self.consumers_left -= 1
            connection.last_pull = connection.ack_count > 0
            if connection.last_pull:
                self._start(index, now)
            else:
                connection.finished = True

    cdef void _on_event(self, int index, unsigned int events) noexcept nogil:
        cdef Connection* connection = &self.connections[index]
        cdef Received got
        if events & EPOLLOUT and connection.waits_to_write:
            self._flush(index)
        if not events & ~EPOLLOUT:
            return
        got = receive(connection)
        if got == WHOLE and connection.in_flight:
            connection.in_flight = False
            self.in_flight -= 1
            if connection.pulls:
                self._pulled(index)
            else:
                self._sent(index)
        elif got == NO_MEMORY:
            self._fail(index, b"memory")
        elif got != PARTLY:
            self._fail(index, b"closed" if got == CLOSED else b"broken")

    cdef bint _over(self, int64_t now) noexcept nogil:
        """Whether the window ends: its time is up, or there is nothing left to send or to pull."""
        if now >= self.window_to:
            return True
        if self.messages_max and self.sent_total >= self.messages_max and self.in_flight == 0:
            return True
        return self.producer_count == 0 and self._all_pulled()

    cdef bint _all_pulled(self) noexcept nogil:
        cdef uint64_t got = self.pulls.deliveries + self.ignored_pulls.deliveries
        return self.consumers_left == 0 or (self.deliveries_max != 0 and got >= self.deliveries_max)

    cdef bint _drained(self, int64_t now) noexcept nogil:
        """Whether nothing is left to wait for after the window. What could not be sent in time is counted as unsent."""
        cdef bint planned = self.schedule.interval_ns != 0 and due_ns(&self.schedule) < self.window_to
        planned = planned and self.messages_max == 0
        if self.in_flight or (planned and now < self.window_to + self.timeout_ns):
            return False
        while planned and due_ns(&self.schedule) < self.window_to:
            self.unsent += self.batch
            advance(&self.schedule)
        return True

    cdef void _arm(self) noexcept nogil:
        """Set the timer to the next tick, phase change or planned call. A timerfd has no timer slack."""
        cdef itimerspec setting
        cdef int64_t at = self.next_tick
        cdef int64_t boundary = self.window_from if self.phase == WARM_UP else self.window_to
        if self.phase != DRAIN and boundary < at:
            at = boundary
        if self.schedule.interval_ns and self.idle_count and due_ns(&self.schedule) < at:
            at = due_ns(&self.schedule)
        if at == self.armed_at:
            return
        self.armed_at = at
        memset(&setting, 0, sizeof(setting))
        setting.it_value.tv_sec, setting.it_value.tv_nsec = at // 1000000000, at % 1000000000
        timerfd_settime(self.timer, TFD_TIMER_ABSTIME, &setting, NULL)

    cdef int _step_phase(self, int64_t now) except -1 nogil:
        """1 when the run has ended."""
        if now >= self.next_tick:
            self._tick(now)
        if self.phase == WARM_UP and now >= self.window_from:
            self._open_window()
        elif self.phase == WINDOW and self._over(now):
            self._close_window(now)
        return self.phase == DRAIN and self._drained(now)

    cdef int _loop(self) except -1 nogil:
        cdef epoll_event events[256]
        cdef int count, index
        while self.fault_index < 0:
            if self.schedule.interval_ns:
                self._start_due()
            if self._step_phase(_now()):
                return 0
            self._arm()
            count = epoll_wait(self.epoll, events, EVENTS, -1)
            if count < 0 and errno != EINTR:
                with gil:
                    raise OSError(errno, "epoll_wait failed")
            for index in range(count):
                if events[index].data.u32 != TIMER:
                    self._on_event(<int>events[index].data.u32, events[index].events)
                else:
                    self.armed_at = 0
        return 0


cdef dict _codes(uint64_t* counts):
    """Code → count. Code 599 stands for every number that the contract does not know."""
    return {code: counts[code] for code in range(CODES) if counts[code]}


def _printable(data: bytes) -> str:
    return "".join(chr(byte) for byte in data if 32 <= byte < 127)
