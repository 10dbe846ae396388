# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The adaptive bound of a queue: the native form of queue_limit.py, for the hot path."""

from libc.math cimport INFINITY, sqrt
from libc.stdint cimport uint64_t

from common.limits.queue_limit import CUT as CUT_PURE, DRIFT as DRIFT_PURE, EASY as EASY_PURE, LIMIT_FIRST as FIRST_PURE
from common.limits.queue_limit import LIMIT_MAX as MAX_PURE, LIMIT_MIN as MIN_PURE, QUEUE_S as QUEUE_PURE, QUEUE_S_MAX as QUEUE_MAX_PURE
from common.limits.queue_limit import LOOK_S as LOOK_PURE, SHARES as SHARES_PURE, STALL as STALL_PURE, STANDSTILL_S as STANDSTILL_PURE
from common.limits.queue_limit import TOLERANCE as TOLERANCE_PURE, USED as USED_PURE

cdef double TOLERANCE = TOLERANCE_PURE, QUEUE_S_MAX = QUEUE_MAX_PURE, LIMIT_MIN = MIN_PURE, LIMIT_MAX = MAX_PURE, LIMIT_FIRST = FIRST_PURE
cdef double LATE_S = LOOK_PURE + STANDSTILL_PURE
cdef double USED = USED_PURE, STALL = STALL_PURE, CUT = CUT_PURE, EASY = EASY_PURE, DRIFT = DRIFT_PURE
cdef double[3] SHARES = SHARES_PURE


cdef class QueueLimit:
    """See queue_limit.QueueLimit."""

    def __init__(self):
        self.limit, self.queue_s = FIRST_PURE, QUEUE_PURE
        self.looked_at = self.stood_until = -INFINITY

    @property
    def bound_s(self):
        """See queue_limit.QueueLimit.bound_s."""
        return self.bound()

    def admits(self, uint64_t waiting, uint64_t asked, int grade):
        """See queue_limit.QueueLimit.admits."""
        return self.lets_in(waiting, asked, grade)

    def answered(self, double started, double now, uint64_t waiting):
        """See queue_limit.QueueLimit.answered."""
        self.sample(started, now, waiting)

    def look(self, double oldest, double now):
        """See queue_limit.QueueLimit.look."""
        self.see(now)
        self.is_stalled = now - max(oldest, self.stood_until) > STALL * self.bound()

    def resume(self, double now):
        """See queue_limit.QueueLimit.resume."""
        self.looked_at = now

    cdef void see(self, double now) noexcept:
        if now - self.looked_at > LATE_S:
            self.stood_until = now
        self.looked_at = now

    cdef double bound(self) noexcept:
        cdef double wanted = max(TOLERANCE * self.base_s, self.queue_s)
        return min(wanted, max(QUEUE_S_MAX, self.queue_s))

    cdef bint lets_in(self, uint64_t waiting, uint64_t asked, int grade) noexcept:
        return waiting == 0 or (not self.is_stalled and <double>(waiting + asked) <= self.limit * SHARES[grade])

    cdef int sample(self, double started, double now, uint64_t waiting) noexcept:
        cdef double took = now - started, bound, reached
        self.is_stalled = False
        self.see(now)
        if started < self.stood_until:
            return 0
        if took < self.base_s or self.base_s == 0:
            self.base_s = took
        elif <double>waiting <= LIMIT_MIN or self.limit <= LIMIT_MIN:
            self.base_s += DRIFT * (took - self.base_s)
        bound = self.bound()
        if took > bound:
            if started >= self.cut_at:
                reached = min(self.limit, max(<double>waiting, self.limit / 4))
                self.limit = max(LIMIT_MIN, reached * max(CUT, bound / took))
                self.cut_at = now
        elif <double>waiting >= USED * self.limit:
            self.limit = min(LIMIT_MAX, self.limit + (0.25 * self.limit if took < EASY * bound else sqrt(self.limit)))
        elif <double>waiting <= LIMIT_MIN and took < EASY * bound and self.limit < LIMIT_FIRST:
            self.limit = min(LIMIT_FIRST, self.limit + sqrt(self.limit))
        return 0
