# cython: language_level=3
"""A slice of a batch's records, and finding the batch and the records that a read begins and ends with."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from engine.link.loads cimport load32

from engine.log.segment._index cimport IndexEntry


cdef struct Slice:
    int64_t first_offset
    int64_t stored_at_ms
    uint32_t count
    uint32_t size
    const uint8_t* records       # valid until the reader that set it is called again


cdef inline uint32_t last_at_or_below(const IndexEntry* run, uint32_t count, uint64_t offset) noexcept nogil:
    """Number of the last entry that begins at or below the offset. The caller has checked that run[0] does."""
    cdef uint32_t low = 0
    cdef uint32_t high = count - 1
    cdef uint32_t middle
    if run[high].base_offset <= offset:
        return high
    while low + 1 < high:
        middle = (low + high) >> 1
        if run[middle].base_offset <= offset:
            low = middle
        else:
            high = middle
    return low


cdef inline void cut(Slice* found, uint32_t skipped, int64_t max_records, int64_t max_bytes, bint some) noexcept nogil:
    """Reduce a whole batch to the wanted part: nothing before `skipped`, and no record that exceeds the bytes.

    The first record is wanted whatever its size, unless there are `some` already. The loops stay within the batch
    because `skipped` is below its count, its checksum was verified, and the appender checked that its records' sizes
    add up to its own.
    """
    cdef const uint8_t* at = found.records
    cdef uint32_t left = found.count - skipped
    cdef uint32_t size
    for _ in range(skipped):
        at += 4 + load32(at)
    found.records = at
    found.count = found.size = 0
    while found.count < left and found.count < max_records:
        size = 4 + load32(at)
        if <int64_t>found.size + size > max_bytes and (found.count or some):
            break
        at += size
        found.size += size
        found.count += 1
