"""Layout of the latency histogram, for the native modules that record into it without the GIL."""

from libc.stdint cimport int64_t, uint64_t

cdef enum:
    SUB_BITS = 7                       # 128 buckets per power of two: a bucket is at most 1/128 of its value wide
    SUB_COUNT = 128
    VALUE_BITS_MAX = 42                # longer than an hour in ns; anything above falls into the last bucket
    BUCKETS = 4608                     # (VALUE_BITS_MAX - SUB_BITS + 1) * SUB_COUNT

cdef extern from *:
    int count_leading_zeros "__builtin_clzll"(unsigned long long) nogil

cdef struct Counts:
    uint64_t total
    uint64_t under_1_ms
    uint64_t under_100_ms
    uint64_t sum_ns
    int64_t max_ns
    uint64_t buckets[4608]


cdef inline int bucket_of(uint64_t value) noexcept nogil:
    """Values below 128 have a bucket each; above, the top 8 bits choose it."""
    cdef int shift
    if value < SUB_COUNT:
        return <int>value
    if value >= (<uint64_t>1 << VALUE_BITS_MAX):
        return BUCKETS - 1
    shift = 63 - count_leading_zeros(value) - SUB_BITS
    return shift * SUB_COUNT + <int>(value >> shift)


cdef inline void record(Counts* counts, int64_t value_ns) noexcept nogil:
    if value_ns < 0:
        value_ns = 0
    counts.total += 1
    counts.sum_ns += <uint64_t>value_ns
    counts.under_1_ms += value_ns < 1000000
    counts.under_100_ms += value_ns < 100000000
    if value_ns > counts.max_ns:
        counts.max_ns = value_ns
    counts.buckets[bucket_of(<uint64_t>value_ns)] += 1


cdef class Histogram:
    cdef Counts counts
