# cython: language_level=3
"""Messages in flight, in one array of C structs. Reference: in_flight.py, which documents them.

Bounds: as in _range_array.pyx. A RangeData pointer is not used after open_gap() or delete().
"""
from heapq import heappop

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t

from engine.delivery._progress_encoder cimport encode_ranges
from engine.delivery._range_array cimport RangeArray
from engine.delivery._range_data cimport RangeData, give_range, is_of, is_waiting

from engine.delivery.in_flight_range import InFlightRange

cdef object copy_of(const RangeData* range_):
    copy = InFlightRange(range_.first, range_.end, range_.lease, range_.attempt, range_.due_ms, bool(range_.ready), range_.first_lease)
    copy.is_restored, copy.is_withheld = bool(range_.is_restored), bool(range_.is_withheld)
    return copy


cdef class InFlightRanges(RangeArray):
    """Native form of InFlightRanges; see the reference for each method."""

    @property
    def ranges(self):
        """Copies of all ranges, in order."""
        cdef Py_ssize_t at
        return [copy_of(&self.slots[at]) for at in range(self.start, self.start + self.count)]

    cpdef bint settle(self, int64_t first, int64_t end, uint64_t lease, bint foreign) except -1:
        cdef Py_ssize_t at = self.before(first)
        cdef RangeData* range_
        cdef bint whole = True
        while at < self.count and self.slots[self.start + at].first < end:
            range_ = &self.slots[self.start + at]
            if range_.end <= first:
                at += 1
            elif is_of(range_, lease, foreign):
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
        give_range(range_, 0)
        range_.due_ms = INT64_MAX
        range_.ready = False
        self.withhold(range_, False)

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

    def hold(self, int64_t first, int64_t end, uint64_t lease, bint foreign, int64_t due_ms, int64_t now_ms,
             bint withheld=False):
        cdef Py_ssize_t at = self.before(first)
        cdef RangeData* range_
        cdef int64_t held = 0
        while at < self.count and self.slots[self.start + at].first < end:
            range_ = &self.slots[self.start + at]
            if range_.end > first and is_of(range_, lease, foreign):
                at = self.split(at, max(first, range_.first), min(end, range_.end))
                range_ = &self.slots[self.start + at]
                give_range(range_, lease)
                range_.due_ms = due_ms
                range_.ready = due_ms <= now_ms
                held += range_.end - range_.first
                self.withhold(range_, withheld and not range_.ready)
                if range_.ready:
                    self.push_ready(range_.first)
                elif withheld:
                    at = self.join(at)
            at += 1
        return held

    def release(self, int64_t first, int64_t end, uint64_t lease, bint foreign):
        cdef Py_ssize_t at = self.before(first)
        cdef RangeData* range_
        cdef int64_t released = 0
        while at < self.count and self.slots[self.start + at].first < end:
            range_ = &self.slots[self.start + at]
            if range_.lease and range_.attempt and self.is_held(at, first, lease, foreign):
                at = self.split(at, max(first, range_.first), min(end, range_.end))
                range_ = &self.slots[self.start + at]
                give_range(range_, 0)
                range_.attempt -= 1
                range_.ready = True
                self.withhold(range_, False)
                released += range_.end - range_.first
                self.push_ready(range_.first)
            at += 1
        return released

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

    def claim_withheld(self, uint32_t attempts_max, uint64_t claimer, Py_ssize_t ranges_max):
        cdef Py_ssize_t at
        cdef RangeData* range_
        claimed = []
        if not self.withheld or self.attempt_top < attempts_max:
            return claimed
        for at in range(self.count):
            range_ = &self.slots[self.start + at]
            if range_.is_withheld and range_.attempt >= attempts_max:
                if len(claimed) == ranges_max:
                    break
                claimed.append(self.give_to(at, claimer))
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
                self.withhold(range_, False)
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
        cdef RangeData* range_
        cdef uint32_t attempt = self.slots[self.start + at].attempt + 1
        cdef uint64_t first_lease = 0 if self.slots[self.start + at].is_restored else self.slots[self.start + at].first_lease
        while self.slots[self.start + stop].end < end:
            stop += 1
        self.split(stop, self.slots[self.start + stop].first, end)
        self.delete(at + 1, stop + 1)
        # In place: a deletion and an insertion among many thousands of ranges would move most of them twice.
        range_ = &self.slots[self.start + at]
        self.messages += end - range_.end
        range_.end = end
        range_.lease = lease
        range_.first_lease = first_lease if attempt > 1 else lease
        range_.attempt = attempt
        range_.due_ms = due_ms
        range_.ready = range_.is_restored = False
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

    cdef bytes encoded_progress(self, uint64_t floor, int64_t next_offset, int64_t now_ms, int64_t time_ms,
                                int64_t lead_ms, int64_t young_ms):
        cdef int64_t first = self.first_offset(next_offset)
        return encode_ranges(
            self.slots + self.start, self.count, floor, first, next_offset, now_ms, time_ms, lead_ms, young_ms
        )

    cdef bint is_certain(self, int64_t first, int64_t end, uint64_t lease) noexcept:
        cdef Py_ssize_t at = self.before(first)
        cdef RangeData* range_
        while at < self.count and self.slots[self.start + at].first < end:
            range_ = &self.slots[self.start + at]
            if range_.end > first and not (range_.is_restored and is_of(range_, lease, True)):
                return False
            at += 1
        return True

    cdef bint is_held(self, Py_ssize_t at, int64_t first, uint64_t lease, bint foreign) noexcept:
        """Whether the range ends after `first` and belongs to the lease."""
        cdef RangeData* range_ = &self.slots[self.start + at]
        return range_.end > first and is_of(range_, lease, foreign)

    cdef object give_to(self, Py_ssize_t at, uint64_t claimer):
        cdef RangeData* range_ = &self.slots[self.start + at]
        before = copy_of(range_)
        if range_.is_restored:
            before.give_to(0)
        give_range(range_, claimer)
        range_.due_ms = INT64_MAX
        range_.ready = False
        self.withhold(range_, False)
        return before
