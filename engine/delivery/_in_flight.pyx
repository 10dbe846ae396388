# cython: language_level=3
"""Runs that are out, in one array of C structs. Twin: runs.py, which says what they mean.

The array has room at both ends: most acknowledgements take the oldest run away, and moving thousands of younger ones for each would
cost more than all the rest of delivery.
"""
from heapq import heappop, heappush

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from engine.delivery.in_flight import Run

cdef enum:
    KEPT_WHEN_EMPTY = 8          # a queue that is read now and then keeps a small array, one that had thousands gives it back


cdef class OpenRuns:
    """As the twin's."""

    def __dealloc__(self):
        free(self.room)

    def __len__(self):
        return self.count

    @property
    def runs(self):
        """Copies of all runs, in order."""
        return [
            Run(run.first, run.end, run.lease, run.attempt, run.due_ms, run.ready, run.first_lease)
            for run in self.room[self.start : self.start + self.count]
        ]

    cdef int add(self, int64_t first, int64_t end, uint64_t lease, uint32_t attempt, int64_t due_ms, bint ready) except -1:
        cdef RunData run
        run.first = first
        run.end = end
        run.lease = lease
        run.first_lease = lease
        run.attempt = attempt
        run.due_ms = due_ms
        run.ready = ready
        self.insert(self.count, run)
        self.messages += end - first
        self.attempt_top = max(self.attempt_top, attempt)
        return 0

    cpdef bint settle(self, int64_t first, int64_t end, uint64_t lease, bint foreign) except -1:
        """As the twin's."""
        cdef Py_ssize_t at = self.before(first)
        cdef RunData* run
        cdef bint whole = True
        while at < self.count and self.room[self.start + at].first < end:
            run = &self.room[self.start + at]
            if run.end <= first:
                at += 1
            elif run.lease == lease or (foreign and run.lease == 0):
                if run.first < first or run.end > end:
                    at = self.split(at, max(first, run.first), min(end, run.end))
                self.delete(at, at + 1)
            else:
                whole = False
                at += 1
        return whole

    def take_out(self, int64_t first, int64_t end, uint64_t lease, bint foreign):
        """As the twin's."""
        cdef Py_ssize_t at = self.before(first)
        cdef RunData* run
        taken = []
        while at < self.count and self.room[self.start + at].first < end:
            run = &self.room[self.start + at]
            if self.is_held(at, first, lease, foreign):
                taken.append((max(first, run.first), min(end, run.end)))
            at += 1
        return self.settle(first, end, lease, foreign), taken

    cdef int wait(self, int64_t offset) except -1:
        """As the twin's."""
        cdef RunData* last
        if self.count:
            last = &self.room[self.start + self.count - 1]
            if last.end == offset and is_waiting(last):
                last.end += 1
                self.messages += 1
                return 0
        return self.add(offset, offset + 1, 0, 0, INT64_MAX, False)

    def make_waiting(self, int64_t offset):
        """As the twin's."""
        cdef Py_ssize_t at = self.split(self.before(offset), offset, offset + 1)
        cdef RunData* run = &self.room[self.start + at]
        run.lease = 0
        run.due_ms = INT64_MAX
        run.ready = False

    def make_ready(self, int64_t offset):
        """As the twin's."""
        cdef Py_ssize_t at = self.before(offset)
        cdef RunData* run = &self.room[self.start + at]
        if at < self.count and run.first <= offset < run.end and is_waiting(run):
            at = self.split(at, offset, offset + 1)
            self.room[self.start + at].ready = True
            self.push_ready(offset)

    def end_waiting(self):
        """As the twin's."""
        cdef Py_ssize_t at
        for at in range(self.start, self.start + self.count):
            if is_waiting(&self.room[at]):
                self.room[at].ready = True
                self.push_ready(self.room[at].first)

    cdef bint all_ready(self) noexcept:
        """As the twin's."""
        cdef Py_ssize_t at
        for at in range(self.start, self.start + self.count):
            if not self.room[at].ready:
                return False
        return True

    cdef Py_ssize_t first_spent(self, uint32_t attempts_max) noexcept:
        """Where the twin's lies, -1 when there is none."""
        cdef Py_ssize_t at
        cdef uint32_t top = 0
        if self.attempt_top < attempts_max:
            return -1
        for at in range(self.count):
            top = max(top, self.room[self.start + at].attempt)
            if self.room[self.start + at].attempt >= attempts_max + (not self.room[self.start + at].ready):
                return at
        self.attempt_top = top
        return -1

    def hold(self, int64_t first, int64_t end, uint64_t lease, bint foreign, int64_t due_ms, int64_t now_ms):
        """As the twin's."""
        cdef Py_ssize_t at = self.before(first)
        cdef RunData* run
        cdef int64_t held = 0
        while at < self.count and self.room[self.start + at].first < end:
            run = &self.room[self.start + at]
            if run.end > first and (run.lease == lease or (foreign and run.lease == 0)):
                at = self.split(at, max(first, run.first), min(end, run.end))
                run = &self.room[self.start + at]
                run.lease = lease
                run.due_ms = due_ms
                run.ready = due_ms <= now_ms
                held += run.end - run.first
                if run.ready:
                    self.push_ready(run.first)
            at += 1
        return held

    def claim(self, int64_t first, int64_t end, uint64_t lease, bint foreign, uint32_t attempt_min, uint64_t claimer):
        """As the twin's."""
        cdef Py_ssize_t at = self.before(first)
        cdef RunData* run
        claimed = []
        if self.attempt_top < attempt_min:
            return claimed
        while at < self.count and self.room[self.start + at].first < end:
            run = &self.room[self.start + at]
            if self.is_held(at, first, lease, foreign) and run.attempt >= attempt_min:
                at = self.split(at, max(first, run.first), min(end, run.end))
                claimed.append(self.give_to(at, claimer))
            at += 1
        return claimed

    def claim_ready(self, int64_t first, int64_t end, uint64_t claimer):
        """As the twin's."""
        cdef Py_ssize_t at = self.before(first)
        cdef RunData* run
        claimed = []
        while at < self.count and self.room[self.start + at].first < end:
            run = &self.room[self.start + at]
            if run.end > first and run.ready:
                at = self.split(at, max(first, run.first), min(end, run.end))
                claimed.append(self.give_to(at, claimer))
            at += 1
        return claimed

    def claim_spent(self, uint32_t attempts_max, uint64_t claimer):
        """As the twin's."""
        cdef Py_ssize_t at
        cdef uint32_t top = 0
        cdef RunData* run
        claimed = []
        if self.attempt_top < attempts_max:
            return claimed
        for at in range(self.count):
            run = &self.room[self.start + at]
            top = max(top, run.attempt)
            if run.ready and run.attempt >= attempts_max:
                claimed.append(self.give_to(at, claimer))
        self.attempt_top = top
        return claimed

    def postpone_spent(self, uint32_t attempts_max, int64_t due_ms):
        """As the twin's."""
        cdef Py_ssize_t at
        cdef RunData* run
        cdef bint found = False
        for at in range(self.count):
            run = &self.room[self.start + at]
            if run.ready and run.attempt >= attempts_max:
                run.ready = False
                run.due_ms = due_ms
                found = True
        return found

    def attempt_of(self, int64_t first, int64_t end, uint64_t lease, bint foreign):
        """As the twin's."""
        cdef Py_ssize_t at = self.before(first)
        while at < self.count and self.room[self.start + at].first < end:
            if self.is_held(at, first, lease, foreign):
                return self.room[self.start + at].attempt
            at += 1
        return 0

    def expire(self, int64_t now_ms):
        """As the twin's."""
        cdef Py_ssize_t at
        cdef RunData* run
        cdef int64_t soonest = -1
        for at in range(self.start, self.start + self.count):
            run = &self.room[at]
            if run.ready:
                continue
            if run.due_ms <= now_ms:
                run.ready = True
                self.push_ready(run.first)
            elif run.due_ms != INT64_MAX and (soonest < 0 or run.due_ms < soonest):
                soonest = run.due_ms
        return None if soonest < 0 else soonest

    cdef bint find_ready(self, int64_t messages_max, int64_t* first, int64_t* end) except -1:
        """The twin's next_ready()."""
        cdef Py_ssize_t at
        cdef int64_t offset, stop
        cdef RunData* run
        while self.ready_firsts:
            offset = self.ready_firsts[0]
            at = self.before(offset)
            run = &self.room[self.start + at]
            if at < self.count and run.first == offset and run.ready:
                stop = run.end
                while stop < offset + messages_max and at + 1 < self.count:
                    at += 1
                    if (run[1].first != stop or not run[1].ready or run[1].attempt != run.attempt):
                        break
                    run += 1
                    stop = run.end
                first[0] = offset
                end[0] = min(stop, offset + messages_max)
                return True
            heappop(self.ready_firsts)
        return False

    cpdef uint32_t release(self, int64_t first, int64_t end, uint64_t lease, int64_t due_ms) except? 0:
        """As the twin's."""
        cdef Py_ssize_t at = self.before(first)
        cdef Py_ssize_t stop = at
        cdef RunData run
        cdef uint32_t attempt = self.room[self.start + at].attempt + 1
        cdef uint64_t first_lease = self.room[self.start + at].first_lease
        while self.room[self.start + stop].end < end:
            stop += 1
        self.split(stop, self.room[self.start + stop].first, end)
        self.delete(at, stop + 1)
        run.first = first
        run.end = end
        run.lease = lease
        run.first_lease = first_lease if attempt > 1 else lease
        run.attempt = attempt
        run.due_ms = due_ms
        run.ready = False
        self.insert(at, run)
        self.messages += end - first
        self.attempt_top = max(self.attempt_top, attempt)
        return attempt

    def trim(self, int64_t offset):
        """As the twin's."""
        cdef Py_ssize_t at = self.before(offset)
        cdef RunData* run = &self.room[self.start + at]
        if at < self.count and run.first < offset < run.end:
            at = self.split(at, offset, run.end)
        elif at < self.count and run.end <= offset:
            at += 1
        self.delete(0, at)

    def clear(self):
        """Forget all runs."""
        self.delete(0, self.count)
        self.ready_firsts = None

    cdef bint is_held(self, Py_ssize_t at, int64_t first, uint64_t lease, bint foreign) noexcept:
        """Whether the run reaches beyond `first` and is in the lease's hands."""
        cdef RunData* run = &self.room[self.start + at]
        return run.end > first and (run.lease == lease or (foreign and run.lease == 0))

    cdef object give_to(self, Py_ssize_t at, uint64_t claimer):
        cdef RunData* run = &self.room[self.start + at]
        before = Run(run.first, run.end, run.lease, run.attempt, run.due_ms, run.ready, run.first_lease)
        run.lease = claimer
        run.due_ms = INT64_MAX
        run.ready = False
        return before

    # -- the array

    cdef Py_ssize_t before(self, int64_t offset) noexcept:
        """Where the last run lies that begins at or below the offset; 0 when none does."""
        cdef RunData* runs = self.room + self.start
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if runs[middle].first <= offset:
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
        """Make first..end, a part of run `at`, a run of its own; returns where it is."""
        cdef RunData part = self.room[self.start + at]
        if end < part.end:
            part.first = end
            self.insert(at + 1, part)
            self.room[self.start + at].end = end
        part = self.room[self.start + at]
        if part.first < first:
            part.first = first
            self.room[self.start + at].end = first
            at += 1
            self.insert(at, part)
        return at

    cdef int insert(self, Py_ssize_t at, RunData run) except -1:
        self.open_gap(at)
        self.room[self.start + at] = run
        self.count += 1
        if run.ready:
            self.push_ready(run.first)
        return 0

    cdef int open_gap(self, Py_ssize_t at) except -1:
        """Make room for one run at `at`."""
        cdef RunData* grown
        cdef Py_ssize_t capacity
        cdef RunData* runs
        if self.start + self.count == self.capacity:
            # Half of it free at the front: moving everything there is paid for by the deletions that made the room.
            capacity = self.capacity if self.start * 2 > self.capacity else max(2, self.capacity * 2)
            grown = self.room
            if capacity != self.capacity:
                grown = <RunData*>malloc(capacity * sizeof(RunData))
                if grown == NULL:
                    raise MemoryError()
            if self.count:
                memmove(grown, self.room + self.start, self.count * sizeof(RunData))
            if grown != self.room:
                free(self.room)
            self.room = grown
            self.capacity = capacity
            self.start = 0
        runs = self.room + self.start + at
        memmove(runs + 1, runs, (self.count - at) * sizeof(RunData))
        return 0

    cdef void delete(self, Py_ssize_t start, Py_ssize_t stop) noexcept:
        cdef RunData* runs = self.room + self.start
        cdef Py_ssize_t at
        for at in range(start, stop):
            self.messages -= runs[at].end - runs[at].first
        if start <= self.count - stop:
            if start:
                memmove(runs + (stop - start), runs, start * sizeof(RunData))
            self.start += stop - start
        else:
            memmove(runs + start, runs + stop, (self.count - stop) * sizeof(RunData))
        self.count -= stop - start
        if self.count == 0:
            self.start = 0
            if self.capacity > KEPT_WHEN_EMPTY:
                free(self.room)
                self.room = NULL
                self.capacity = 0
