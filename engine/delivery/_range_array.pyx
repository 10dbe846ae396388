# cython: language_level=3
"""The array of ranges in flight: ordered C structs, with free space at both ends.

Most acknowledgements remove the oldest range, and moving thousands of younger ones for each would cost more than the
rest of delivery.

Bounds: `slots` has `capacity` entries; the ranges are slots[start .. start + count], and `start + count <= capacity`
after each method. Indices named `at` count from `start`. Only open_gap() and delete() change the array's size or
position.
"""
from heapq import heappush

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memmove

from engine.delivery._range_data cimport RangeData

cdef enum:
    KEPT_WHEN_EMPTY = 8          # queues that are read now and then keep a small array; one that had thousands is freed


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
