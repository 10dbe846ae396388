# cython: language_level=3
"""The array of ranges in flight: ordered C structs, with free space at both ends.

Most acknowledgements remove the oldest range, and moving thousands of younger ones for each would cost more than the
rest of delivery.

Bounds: `slots` has `capacity` entries; the ranges are slots[start .. start + count], and `start + count <= capacity`
after each method. Indices named `at` count from `start`. Only open_gap() and delete() change the array's size or
position.
"""
from heapq import heappush

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memmove

from engine.delivery._progress_encoder cimport Numbers, unzigzag
from engine.delivery._range_data cimport RangeData, is_continued_by

from engine.delivery.progress import COUNTER_BITS, DUE_STEP_BITS, WITHHELD_VERSION, decode

cdef enum:
    KEPT_WHEN_EMPTY = 8          # queues that are read now and then keep a small array; one that had thousands is freed

cdef int LEASE_COUNTER_BITS = COUNTER_BITS
cdef int DUE_BITS = DUE_STEP_BITS
cdef uint64_t VERSION_MAX = WITHHELD_VERSION


cdef class RangeArray:
    """The ranges of one queue of one group, and the heap of those that are ready."""

    def __dealloc__(self):
        free(self.slots)

    def __len__(self):
        return self.count

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

    cdef void withhold(self, RangeData* range_, bint withheld) noexcept:
        """Mark the range as withheld, or not, and count it."""
        cdef int64_t messages = range_.end - range_.first
        if range_.is_withheld != withheld:
            range_.is_withheld = withheld
            self.withheld += 1 if withheld else -1
            self.withheld_messages += messages if withheld else -messages

    cdef Py_ssize_t join(self, Py_ssize_t at) noexcept:
        """Make withheld range `at` one with the range before it, if they are alike; returns the index of both."""
        cdef RangeData* before = self.slots + self.start + at - 1
        cdef RangeData* range_ = self.slots + self.start + at
        cdef int64_t messages = range_.end - range_.first
        if at == 0 or not is_continued_by(before, range_):
            return at
        before.end = range_.end
        self.messages += messages    # delete() takes them away
        self.withheld_messages += messages
        self.delete(at, at + 1)
        return at - 1

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
        self.withheld += range_.is_withheld
        if range_.ready:
            self.push_ready(range_.first)
        return 0

    cdef int open_gap(self, Py_ssize_t at) except -1:
        """Free one slot at index `at`."""
        cdef RangeData* grown
        cdef Py_ssize_t capacity
        cdef RangeData* ranges
        if self.start and at < self.count >> 1:
            ranges = self.slots + self.start
            memmove(ranges - 1, ranges, at * sizeof(RangeData))
            self.start -= 1
            return 0
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
            self.withhold(&ranges[at], False)
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

    cdef int add(self, int64_t first, int64_t end, uint64_t lease, uint32_t attempt, int64_t due_ms, bint ready) except -1:
        cdef RangeData range_
        range_.first = first
        range_.end = end
        range_.lease = lease
        range_.first_lease = lease
        range_.attempt = attempt
        range_.due_ms = due_ms
        range_.ready = ready
        range_.is_restored = range_.is_withheld = False
        self.insert(self.count, range_)
        self.messages += end - first
        self.attempt_top = max(self.attempt_top, attempt)
        return 0

    cpdef tuple load(self, bytes value, int64_t base_ms):
        """load() of the reference, in_flight.py, without an object per range."""
        try:
            return self.load_value(Numbers(value), base_ms)
        except ValueError:
            self.delete(0, self.count)
            decode(value)  # says what is wrong
            raise

    cdef tuple load_value(self, Numbers numbers, int64_t base_ms):
        cdef uint64_t version = <uint64_t>numbers.take()
        cdef uint64_t floor = <uint64_t>numbers.take()
        cdef int64_t time_ms = 0
        cdef int64_t lead_ms = 0
        cdef int64_t due_before = 0
        cdef int64_t top_ms = -1
        cdef int64_t at, count, first, attempt, due, newest, oldest, number, newest_before
        if version < 1 or version > VERSION_MAX:
            raise ValueError("version")
        if version > 1:
            time_ms = numbers.take()
            lead_ms = numbers.take()
        newest_before = time_ms + lead_ms
        at = numbers.take()
        count = numbers.take()
        if count > numbers.size:
            raise ValueError("count")
        for _ in range(count):
            first = at + numbers.take()
            at = first + numbers.take()
            attempt = numbers.take()
            number = numbers.take() if version > 1 else 0
            if not number:
                self.add(first, at, 0, <uint32_t>attempt, time_ms - base_ms, True)
                continue
            if version == 2:
                due = number
                newest = newest_before - numbers.take()
            else:
                due_before += unzigzag((number - 1) >> 1)
                newest_before += numbers.take_zigzag()
                due, newest = due_before, newest_before
            oldest = newest - numbers.take()
            top_ms = max(top_ms, newest)
            self.restore(first, at, <uint32_t>attempt, time_ms + (due << DUE_BITS) - base_ms, <uint64_t>oldest, <uint64_t>newest,
                         version > 2 and (number - 1) & 1)
        at += numbers.take()
        if numbers.at != numbers.size:
            raise ValueError("goes on")
        return floor, at, max(floor, (<uint64_t>(top_ms + 1) << LEASE_COUNTER_BITS) - 1 if top_ms >= 0 else 0)

    cdef int restore(self, int64_t first, int64_t end, uint32_t attempt, int64_t due_ms, uint64_t oldest_ms, uint64_t newest_ms,
                     bint withheld) except -1:
        cdef RangeData* range_
        self.add(first, end, 0, attempt, due_ms, False)
        if newest_ms:
            range_ = &self.slots[self.start + self.count - 1]
            range_.first_lease = oldest_ms << LEASE_COUNTER_BITS
            range_.lease = (newest_ms + 1 << LEASE_COUNTER_BITS) - 1
            range_.is_restored = True
            self.withhold(range_, withheld)
        return 0
