# cython: language_level=3
"""Messages in flight, in one array of C structs. Reference: in_flight.py, which documents them.

The array has free space at both ends: most acknowledgements remove the oldest range, and moving thousands of younger
ones for each would cost more than the rest of delivery.

Bounds: `slots` has `capacity` entries; the ranges are slots[start .. start + count], and `start + count <= capacity`
after each method. Indices named `at` count from `start`. Only open_gap() and delete() change the array's size or
position; a RangeData pointer is not used after either.
"""
from heapq import heappop, heappush

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memmove

from engine.delivery._progress cimport encode_ranges
from engine.delivery._range_data cimport RangeData, is_waiting

from engine.delivery.in_flight import InFlightRange

cdef enum:
    KEPT_WHEN_EMPTY = 8          # queues that are read now and then keep a small array; one that had thousands is freed


cdef class InFlightRanges:
    """Native form of InFlightRanges; see the reference for each method."""

    def __dealloc__(self):
        free(self.slots)

    def __len__(self):
        return self.count

    @property
    def ranges(self):
        """Copies of all ranges, in order."""
        return [
            InFlightRange(range_.first, range_.end, range_.lease, range_.attempt, range_.due_ms, range_.ready, range_.first_lease)
            for range_ in self.slots[self.start : self.start + self.count]
        ]

    cdef int add(self, int64_t first, int64_t end, uint64_t lease, uint32_t attempt, int64_t due_ms, bint ready) except -1:
        cdef RangeData range_
        range_.first = first
        range_.end = end
        range_.lease = lease
        range_.first_lease = lease
        range_.attempt = attempt
        range_.due_ms = due_ms
        range_.ready = ready
        self.insert(self.count, range_)
        self.messages += end - first
        self.attempt_top = max(self.attempt_top, attempt)
        return 0

    cpdef bint settle(self, int64_t first, int64_t end, uint64_t lease, bint foreign) except -1:
        cdef Py_ssize_t at = self.before(first)
        cdef RangeData* range_
        cdef bint whole = True
        while at < self.count and self.slots[self.start + at].first < end:
            range_ = &self.slots[self.start + at]
            if range_.end <= first:
                at += 1
            elif range_.lease == lease or (foreign and range_.lease == 0):
                if range_.first < first or range_.end > end:
                    at = self.split(at, max(first, range_.first), min(end, range_.end))
                self.delete(at, at + 1)
            else:
                whole = False
                at += 1
        return whole

    def settle_and_list(self, int64_t first, int64_t end, uint64_t lease, bint foreign):
        cdef Py_ssize_t at = self.before(first)
        cdef RangeData* range_
        settled = []
        while at < self.count and self.slots[self.start + at].first < end:
            range_ = &self.slots[self.start + at]
            if self.is_held(at, first, lease, foreign):
                settled.append((max(first, range_.first), min(end, range_.end)))
            at += 1
        return self.settle(first, end, lease, foreign), settled

    cdef int wait(self, int64_t offset) except -1:
        cdef RangeData* last
        if self.count:
            last = &self.slots[self.start + self.count - 1]
            if last.end == offset and is_waiting(last):
                last.end += 1
                self.messages += 1
                return 0
        return self.add(offset, offset + 1, 0, 0, INT64_MAX, False)

    def make_waiting(self, int64_t offset):
        cdef Py_ssize_t at = self.split(self.before(offset), offset, offset + 1)
        cdef RangeData* range_ = &self.slots[self.start + at]
        range_.lease = 0
        range_.due_ms = INT64_MAX
        range_.ready = False

    def make_ready(self, int64_t offset):
        cdef Py_ssize_t at = self.before(offset)
        cdef RangeData* range_ = &self.slots[self.start + at]
        if at < self.count and range_.first <= offset < range_.end and is_waiting(range_):
            at = self.split(at, offset, offset + 1)
            self.slots[self.start + at].ready = True
            self.push_ready(offset)

    def end_waiting(self):
        cdef Py_ssize_t at
        for at in range(self.start, self.start + self.count):
            if is_waiting(&self.slots[at]):
                self.slots[at].ready = True
                self.push_ready(self.slots[at].first)

    cdef bint all_ready(self) noexcept:
        cdef Py_ssize_t at
        for at in range(self.start, self.start + self.count):
            if not self.slots[at].ready:
                return False
        return True

    cdef (int64_t, int64_t) next_spent(self, uint32_t attempts_max, int64_t messages_max) noexcept:
        cdef Py_ssize_t at
        cdef uint32_t top = 0
        cdef RangeData* each
        if self.attempt_top < attempts_max:
            return -1, -1
        for at in range(self.count):
            each = &self.slots[self.start + at]
            top = max(top, each.attempt)
            if each.attempt >= attempts_max + (not each.ready):
                return each.first, min(each.end, each.first + messages_max) if each.ready else each.first
        self.attempt_top = top
        return -1, -1

    def hold(self, int64_t first, int64_t end, uint64_t lease, bint foreign, int64_t due_ms, int64_t now_ms):
        cdef Py_ssize_t at = self.before(first)
        cdef RangeData* range_
        cdef int64_t held = 0
        while at < self.count and self.slots[self.start + at].first < end:
            range_ = &self.slots[self.start + at]
            if range_.end > first and (range_.lease == lease or (foreign and range_.lease == 0)):
                at = self.split(at, max(first, range_.first), min(end, range_.end))
                range_ = &self.slots[self.start + at]
                range_.lease = lease
                range_.due_ms = due_ms
                range_.ready = due_ms <= now_ms
                held += range_.end - range_.first
                if range_.ready:
                    self.push_ready(range_.first)
            at += 1
        return held

    def claim(self, int64_t first, int64_t end, uint64_t lease, bint foreign, uint32_t attempt_min, uint64_t claimer):
        cdef Py_ssize_t at = self.before(first)
        cdef RangeData* range_
        claimed = []
        if self.attempt_top < attempt_min:
            return claimed
        while at < self.count and self.slots[self.start + at].first < end:
            range_ = &self.slots[self.start + at]
            if self.is_held(at, first, lease, foreign) and range_.attempt >= attempt_min:
                at = self.split(at, max(first, range_.first), min(end, range_.end))
                claimed.append(self.give_to(at, claimer))
            at += 1
        return claimed

    def claim_ready(self, int64_t first, int64_t end, uint64_t claimer):
        cdef Py_ssize_t at = self.before(first)
        cdef RangeData* range_
        claimed = []
        while at < self.count and self.slots[self.start + at].first < end:
            range_ = &self.slots[self.start + at]
            if range_.end > first and range_.ready:
                at = self.split(at, max(first, range_.first), min(end, range_.end))
                claimed.append(self.give_to(at, claimer))
            at += 1
        return claimed

    def claim_spent(self, uint32_t attempts_max, uint64_t claimer):
        cdef Py_ssize_t at
        cdef uint32_t top = 0
        cdef RangeData* range_
        claimed = []
        if self.attempt_top < attempts_max:
            return claimed
        for at in range(self.count):
            range_ = &self.slots[self.start + at]
            top = max(top, range_.attempt)
            if range_.ready and range_.attempt >= attempts_max:
                claimed.append(self.give_to(at, claimer))
        self.attempt_top = top
        return claimed

    def postpone_spent(self, uint32_t attempts_max, int64_t due_ms):
        cdef Py_ssize_t at
        cdef RangeData* range_
        cdef bint found = False
        for at in range(self.count):
            range_ = &self.slots[self.start + at]
            if range_.ready and range_.attempt >= attempts_max:
                range_.ready = False
                range_.due_ms = due_ms
                found = True
        return found

    def attempt_of(self, int64_t first, int64_t end, uint64_t lease, bint foreign):
        cdef Py_ssize_t at = self.before(first)
        while at < self.count and self.slots[self.start + at].first < end:
            if self.is_held(at, first, lease, foreign):
                return self.slots[self.start + at].attempt
            at += 1
        return 0

    def expire(self, int64_t now_ms):
        cdef Py_ssize_t at
        cdef RangeData* range_
        cdef int64_t soonest = -1
        for at in range(self.start, self.start + self.count):
            range_ = &self.slots[at]
            if range_.ready:
                continue
            if range_.due_ms <= now_ms:
                range_.ready = True
                self.push_ready(range_.first)
            elif range_.due_ms != INT64_MAX and (soonest < 0 or range_.due_ms < soonest):
                soonest = range_.due_ms
        return None if soonest < 0 else soonest

    cdef (int64_t, int64_t) next_ready(self, int64_t messages_max) except *:
        cdef Py_ssize_t at
        cdef int64_t offset, stop
        cdef RangeData* range_
        while self.ready_firsts:
            offset = self.ready_firsts[0]
            at = self.before(offset)
            range_ = &self.slots[self.start + at]
            if at < self.count and range_.first == offset and range_.ready:
                stop = range_.end
                while stop < offset + messages_max and at + 1 < self.count:
                    at += 1
                    if (range_[1].first != stop or not range_[1].ready or range_[1].attempt != range_.attempt):
                        break
                    range_ += 1
                    stop = range_.end
                return offset, min(stop, offset + messages_max)
            heappop(self.ready_firsts)
        return 0, 0

    cdef uint32_t lease_again(self, int64_t first, int64_t end, uint64_t lease, int64_t due_ms) except? 0:
        cdef Py_ssize_t at = self.before(first)
        cdef Py_ssize_t stop = at
        cdef RangeData range_
        cdef uint32_t attempt = self.slots[self.start + at].attempt + 1
        cdef uint64_t first_lease = self.slots[self.start + at].first_lease
        while self.slots[self.start + stop].end < end:
            stop += 1
        self.split(stop, self.slots[self.start + stop].first, end)
        self.delete(at, stop + 1)
        range_.first = first
        range_.end = end
        range_.lease = lease
        range_.first_lease = first_lease if attempt > 1 else lease
        range_.attempt = attempt
        range_.due_ms = due_ms
        range_.ready = False
        self.insert(at, range_)
        self.messages += end - first
        self.attempt_top = max(self.attempt_top, attempt)
        return attempt

    def trim(self, int64_t offset):
        cdef Py_ssize_t at = self.before(offset)
        cdef RangeData* range_ = &self.slots[self.start + at]
        if at < self.count and range_.first < offset < range_.end:
            at = self.split(at, offset, range_.end)
        elif at < self.count and range_.end <= offset:
            at += 1
        self.delete(0, at)

    def clear(self):
        """Forget all ranges."""
        self.delete(0, self.count)
        self.ready_firsts = None

    cdef bytes encoded_progress(self, uint64_t floor, int64_t next_offset):
        return encode_ranges(self.slots + self.start, self.count, floor, self.first_offset(next_offset), next_offset)

    cdef bint is_held(self, Py_ssize_t at, int64_t first, uint64_t lease, bint foreign) noexcept:
        """Whether the range ends after `first` and belongs to the lease."""
        cdef RangeData* range_ = &self.slots[self.start + at]
        return range_.end > first and (range_.lease == lease or (foreign and range_.lease == 0))

    cdef object give_to(self, Py_ssize_t at, uint64_t claimer):
        cdef RangeData* range_ = &self.slots[self.start + at]
        before = InFlightRange(range_.first, range_.end, range_.lease, range_.attempt, range_.due_ms, range_.ready, range_.first_lease)
        range_.lease = claimer
        range_.due_ms = INT64_MAX
        range_.ready = False
        return before

    # -- the array

    cdef Py_ssize_t before(self, int64_t offset) noexcept:
        """Index of the last range that begins at or below the offset; 0 when none does."""
        cdef RangeData* ranges = self.slots + self.start
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if ranges[middle].first <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1 if low else 0

    cdef int push_ready(self, int64_t first) except -1:
        if self.ready_firsts is None:
            self.ready_firsts = []
        heappush(self.ready_firsts, first)
        return 0

    cdef Py_ssize_t split(self, Py_ssize_t at, int64_t first, int64_t end) except -1:
        """Make first..end, a part of range `at`, a range of its own; returns its index."""
        cdef RangeData part = self.slots[self.start + at]
        if end < part.end:
            part.first = end
            self.insert(at + 1, part)
            self.slots[self.start + at].end = end
        part = self.slots[self.start + at]
        if part.first < first:
            part.first = first
            self.slots[self.start + at].end = first
            at += 1
            self.insert(at, part)
        return at

    cdef int insert(self, Py_ssize_t at, RangeData range_) except -1:
        self.open_gap(at)
        self.slots[self.start + at] = range_
        self.count += 1
        if range_.ready:
            self.push_ready(range_.first)
        return 0

    cdef int open_gap(self, Py_ssize_t at) except -1:
        """Free one slot at index `at`."""
        cdef RangeData* grown
        cdef Py_ssize_t capacity
        cdef RangeData* ranges
        if self.start + self.count == self.capacity:
            # With half of the array free at the front, moving everything there is paid for by the deletions that freed
            # it.
            capacity = self.capacity if self.start * 2 > self.capacity else max(2, self.capacity * 2)
            grown = self.slots
            if capacity != self.capacity:
                grown = <RangeData*>malloc(capacity * sizeof(RangeData))
                if grown == NULL:
                    raise MemoryError()
            if self.count:
                memmove(grown, self.slots + self.start, self.count * sizeof(RangeData))
            if grown != self.slots:
                free(self.slots)
            self.slots = grown
            self.capacity = capacity
            self.start = 0
        ranges = self.slots + self.start + at
        memmove(ranges + 1, ranges, (self.count - at) * sizeof(RangeData))
        return 0

    cdef void delete(self, Py_ssize_t start, Py_ssize_t stop) noexcept:
        cdef RangeData* ranges = self.slots + self.start
        cdef Py_ssize_t at
        for at in range(start, stop):
            self.messages -= ranges[at].end - ranges[at].first
        if start <= self.count - stop:
            if start:
                memmove(ranges + (stop - start), ranges, start * sizeof(RangeData))
            self.start += stop - start
        else:
            memmove(ranges + start, ranges + stop, (self.count - stop) * sizeof(RangeData))
        self.count -= stop - start
        if self.count == 0:
            self.start = 0
            if self.capacity > KEPT_WHEN_EMPTY:
                free(self.slots)
                self.slots = NULL
                self.capacity = 0
