# cython: language_level=3
"""One queue as one group sees it. Twin: cursor.py, which says what the fields mean; only what every message meets is native."""
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from cpython.bytes cimport PyBytes_FromStringAndSize

from engine.delivery._key_order cimport KeyOrder
from engine.delivery._in_flight cimport InFlightRanges, RangeData

from common.dead_letters import is_dead_letter_topic
from engine.delivery.intervals import IntervalSet
from engine.delivery.policy import ATTEMPTS_ENDLESS, PARK, SKIP, STOP
from engine.delivery.progress import VERSION as PROGRESS_VERSION
from engine.delivery.progress import Progress, encode

cdef enum:
    NO_DUE = -1
    # Order, of policy.py.
    NONE = 0
    KEY = 1
    QUEUE = 2
    VARINT_MAX = 10

cdef uint64_t VERSION = PROGRESS_VERSION


cdef inline bint ends_here(const RangeData* ranges, Py_ssize_t at, Py_ssize_t count) noexcept:
    """False when this range_ and the next one are one in what is kept."""
    return at + 1 == count or ranges[at].end != ranges[at + 1].first or ranges[at].attempt != ranges[at + 1].attempt


cdef inline unsigned char* put(unsigned char* out, uint64_t number) noexcept:
    """A varint; returns where the next one goes."""
    while number > 0x7f:
        out[0] = <unsigned char>(number & 0x7f | 0x80)
        number >>= 7
        out += 1
    out[0] = <unsigned char>number
    return out + 1


cdef class QueueCursor:
    """As the twin's."""

    def __init__(self, str topic_name, uint32_t topic_id, uint64_t topic_hash, uint32_t queue, settings):
        self.topic_name, self.topic_id, self.topic_hash, self.queue = topic_name, topic_id, topic_hash, queue
        self.settings = settings
        self.in_flight_max, self.ranges_max = settings.in_flight_max, settings.ranges_max
        self.key = b""
        self.is_dead_letters = is_dead_letter_topic(topic_name)
        self.in_flight = InFlightRanges()
        self.early = IntervalSet()
        self.early_firsts = self.early.firsts
        self.waiting_max = settings.waiting_max
        self.is_sorted = True
        self.due_at_ms = NO_DUE
        self.tick = 0
        self.subscriptions = []

    @property
    def due_ms(self):
        return None if self.due_at_ms == NO_DUE else self.due_at_ms

    @due_ms.setter
    def due_ms(self, value):
        self.due_at_ms = NO_DUE if value is None else value

    @property
    def contiguous(self):
        """Everything below is acknowledged."""
        return self.in_flight.slots[self.in_flight.start].first if self.in_flight.count else self.next_offset

    def see(self, int64_t first_offset, int64_t end_offset):
        """As the twin's."""
        self.end_seen = end_offset
        if first_offset > self.contiguous:
            self.in_flight.trim(first_offset)
            if self.keys is not None:
                for offset in self.keys.offsets():
                    if offset < first_offset:
                        self.done_one(offset)
            self.next_offset = self.early.skip(max(self.next_offset, first_offset))

    cdef bint next_run(self, int64_t messages_max, int64_t* first, int64_t* end) except -1:
        """The twin's plan(), without the attempt."""
        cdef int64_t room
        cdef Py_ssize_t stuck
        if self.stop_at:
            stuck = self.in_flight.first_spent(self.stop_at)
            if stuck >= 0:
                first[0] = self.in_flight.slots[self.in_flight.start + stuck].first
                end[0] = min(self.in_flight.slots[self.in_flight.start + stuck].end, first[0] + messages_max)
                return self.in_flight.slots[self.in_flight.start + stuck].ready
        if self.order == QUEUE and not self.in_flight.all_ready():
            return False
        if self.in_flight.find_ready(messages_max, first, end):
            return True
        room = min(self.in_flight_max - self.in_flight.messages, messages_max)
        if self.keys is not None:
            room = min(room, self.waiting_max - self.keys.waiting)
        if room <= 0 or self.in_flight.count >= self.ranges_max:
            return False
        if self.early_firsts:
            self.next_offset = self.early.skip(self.next_offset)
        first[0] = self.next_offset
        end[0] = min(self.end_seen, self.next_offset + room)
        if self.early_firsts:
            end[0] = min(end[0], <int64_t>self.early_firsts[0])
        return end[0] > first[0]

    cdef uint32_t give(self, int64_t first, int64_t end, uint64_t lease, int64_t due_ms) except? 0:
        """The twin's lease()."""
        if first != self.next_offset:
            return self.in_flight.release(first, end, lease, due_ms)
        self.in_flight.add(first, end, lease, 1, due_ms, False)
        self.next_offset = end
        return 1

    cdef int leave_out(self, int64_t first, int64_t end, uint64_t lease) except -1:
        """As the twin's."""
        if first == self.next_offset:
            self.next_offset = end
        else:
            self.in_flight.release(first, end, lease, 0)
            self.settle(first, end, lease, False)
        return 0

    cdef int wait(self, int64_t offset) except -1:
        """As the twin's."""
        self.in_flight.wait(offset)
        self.next_offset = offset + 1
        return 0

    cpdef bint settle(self, int64_t first, int64_t end, uint64_t lease, bint foreign) except -1:
        """As the twin's."""
        cdef bint whole
        if lease < self.floor:
            return False
        if self.keys is None:
            whole = self.in_flight.settle(first, end, lease, foreign)
        else:
            whole, taken = self.in_flight.take_out(first, end, lease, foreign)
            for start, stop in taken:
                self.done(start, stop)
        if end > self.next_offset:
            if not foreign:
                return False
            self.early.add(max(first, self.next_offset), end)
            if first <= self.next_offset:
                self.next_offset = self.early.skip(self.next_offset)
        return whole

    def hold(self, int64_t first, int64_t end, uint64_t lease, bint foreign, int64_t due_ms, int64_t now_ms):
        """As the twin's."""
        if lease < self.floor:
            return 0
        return self.in_flight.hold(first, end, lease, foreign, due_ms, now_ms)

    def claim(self, int64_t first, int64_t end, uint64_t lease, bint foreign, uint32_t attempt_min, uint64_t claimer):
        """As the twin's."""
        if lease < self.floor:
            return []
        return self.in_flight.claim(first, end, lease, foreign, attempt_min, claimer)

    def pass_over(self, int64_t end):
        """As the twin's."""
        cdef int64_t stop
        while self.next_offset < end:
            stop = end
            if self.early_firsts:
                self.next_offset = self.early.skip(self.next_offset)
            if self.early_firsts:
                stop = min(end, <int64_t>self.early_firsts[0])
            if stop > self.next_offset:
                self.in_flight.add(self.next_offset, stop, 0, 0, 0, True)
                self.next_offset = stop

    @property
    def attempts_max(self):
        """As the twin's."""
        policy = self.group.policy
        if self.is_dead_letters:
            return ATTEMPTS_ENDLESS
        is_full = self.keys is not None and self.keys.waiting >= self.waiting_max
        if policy.on_failure == SKIP or (policy.on_failure == PARK and is_full):
            return policy.attempts_max
        return ATTEMPTS_ENDLESS

    def follow(self, policy):
        """As the twin's."""
        cdef int order = NONE if self.is_dead_letters else policy.order
        self.stop_at = policy.attempts_max if order == KEY and policy.on_failure == STOP else 0
        if order == self.order:
            return
        self.order = order
        self.in_flight.end_waiting()
        self.forget_keys()

    cdef int forget_keys(self) except -1:
        self.keys = KeyOrder() if self.order == KEY else None
        self.is_sorted, self.sorted_until = self.keys is None or self.in_flight.count == 0, 0
        return 0

    cdef int done(self, int64_t first, int64_t end) except -1:
        """As the twin's _done()."""
        cdef int64_t offset
        for offset in range(first, end):
            self.done_one(offset)
        return 0

    cdef int done_one(self, int64_t offset) except -1:
        cdef int64_t following = self.keys.done(offset)
        if following >= 0:
            self.in_flight.make_ready(following)
            self.blocked = True
        return 0

    def move(self, int64_t offset, uint64_t floor):
        """As the twin's."""
        self.in_flight.clear()
        self.early.clear()
        self.forget_keys()
        self.next_offset, self.floor = offset, floor

    def progress(self):
        """As the twin's."""
        cdef Py_ssize_t at
        ranges = []
        for at in range(self.in_flight.start, self.in_flight.start + self.in_flight.count):
            ranges.append((self.in_flight.slots[at].first, self.in_flight.slots[at].end, self.in_flight.slots[at].attempt))
        offset = self.next_offset
        for first, end in self.early:
            ranges.append((offset, first, 0))
            offset = end
        return Progress(self.floor, offset, ranges)

    def encoded_progress(self):
        """As the twin's."""
        cdef const RangeData* ranges = self.in_flight.slots + self.in_flight.start
        cdef int64_t at = ranges[0].first if self.in_flight.count else self.next_offset
        cdef int64_t first
        cdef uint64_t merged = 0
        cdef Py_ssize_t i
        cdef unsigned char* start
        cdef unsigned char* out
        if self.early_firsts:
            return encode(self.progress())
        for i in range(self.in_flight.count):
            merged += ends_here(ranges, i, self.in_flight.count)
        start = out = <unsigned char*>malloc(VARINT_MAX * (5 + 3 * merged))
        if start == NULL:
            raise MemoryError()
        out = put(put(put(put(out, VERSION), self.floor), <uint64_t>at), merged)
        first = at
        for i in range(self.in_flight.count):
            if ends_here(ranges, i, self.in_flight.count):
                out = put(put(put(out, <uint64_t>(first - at)), <uint64_t>(ranges[i].end - first)), ranges[i].attempt)
                at = ranges[i].end
                first = ranges[i + 1].first if i + 1 < self.in_flight.count else at
        out = put(out, <uint64_t>(self.next_offset - at))
        try:
            return PyBytes_FromStringAndSize(<char*>start, out - start)
        finally:
            free(start)

    def resume(self, progress):
        """As the twin's."""
        self.floor, self.next_offset = progress.floor, progress.next_offset
        for first, end, attempt in progress.ranges:
            self.in_flight.add(first, end, 0, attempt, 0, True)
        self.forget_keys()
