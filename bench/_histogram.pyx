"""Latencies in logarithmic buckets: constant memory, percentiles within 1 % however long the run.

As in HdrHistogram, the width of a bucket is a fixed share of its value. The two shares that the bars name (under 1 ms,
under 100 ms) and the maximum are counted exactly.
"""

import math

from libc.string cimport memset


cdef class Histogram:
    """Durations in nanoseconds."""

    def __cinit__(self):
        memset(&self.counts, 0, sizeof(Counts))

    def record(self, value_ns: int) -> None:
        record(&self.counts, value_ns)

    def add(self, other: Histogram) -> None:
        """Count the values of `other`, too."""
        cdef int bucket
        self.counts.total += other.counts.total
        self.counts.sum_ns += other.counts.sum_ns
        self.counts.under_1_ms += other.counts.under_1_ms
        self.counts.under_100_ms += other.counts.under_100_ms
        self.counts.max_ns = max(self.counts.max_ns, other.counts.max_ns)
        for bucket in range(BUCKETS):
            self.counts.buckets[bucket] += other.counts.buckets[bucket]

    def __len__(self) -> int:
        return self.counts.total

    @property
    def max_ns(self) -> int:
        return self.counts.max_ns

    @property
    def mean_ns(self) -> float:
        return self.counts.sum_ns / self.counts.total if self.counts.total else 0.0

    @property
    def share_under_1_ms(self) -> float:
        return self.counts.under_1_ms / self.counts.total if self.counts.total else 0.0

    @property
    def share_under_100_ms(self) -> float:
        return self.counts.under_100_ms / self.counts.total if self.counts.total else 0.0

    def percentile(self, share: float) -> int:
        """The smallest value (its bucket's middle) that `share` of all values do not exceed; 0 without values."""
        cdef uint64_t rank, seen = 0
        cdef int bucket
        if not self.counts.total:
            return 0
        rank = max(1, math.ceil(self.counts.total * share))
        if rank >= self.counts.total:
            return self.counts.max_ns
        for bucket in range(BUCKETS):
            seen += self.counts.buckets[bucket]
            if seen >= rank:
                return min(_middle(bucket), self.counts.max_ns)
        return self.counts.max_ns


cdef int64_t _middle(int bucket) noexcept nogil:
    cdef int shift
    cdef int64_t lowest
    if bucket < 2 * SUB_COUNT:
        return bucket
    shift = bucket // SUB_COUNT - 1
    lowest = <int64_t>(bucket - shift * SUB_COUNT) << shift
    return lowest + ((<int64_t>1 << shift) >> 1)
