# cython: language_level=3
"""Range in flight as a C struct; fields as in in_flight_range.py."""
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t


cdef struct RangeData:
    int64_t first
    int64_t end
    uint64_t lease
    uint64_t first_lease
    int64_t due_ms
    uint32_t attempt
    unsigned char ready
    unsigned char is_restored
    unsigned char is_withheld


cdef inline bint is_of(const RangeData* range_, uint64_t lease, bint foreign) noexcept:
    if range_.lease == lease:
        return True
    return foreign and (range_.lease == 0 or (range_.is_restored and range_.first_lease <= lease <= range_.lease))


cdef inline void give_range(RangeData* range_, uint64_t lease) noexcept:
    """give_to() of the reference."""
    range_.lease = lease
    if range_.is_restored:
        range_.is_restored = False
        range_.first_lease = 0


cdef inline bint is_continued_by(const RangeData* range_, const RangeData* other) noexcept:
    """As in the reference."""
    return (
        other.first == range_.end and other.is_withheld == range_.is_withheld and other.lease == range_.lease
        and other.first_lease == range_.first_lease and other.is_restored == range_.is_restored
        and other.due_ms == range_.due_ms and other.attempt == range_.attempt
    )


cdef inline bint is_waiting(const RangeData* range_) noexcept:
    return not range_.ready and range_.lease == 0 and range_.due_ms == INT64_MAX
