# cython: language_level=3
"""Encoder of stored progress over an array of C structs. Reference: encode() in progress.py."""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

from cpython.bytes cimport PyBytes_FromStringAndSize

from engine.delivery._range_data cimport RangeData

from engine.delivery.progress import VERSION as PROGRESS_VERSION

cdef enum:
    VARINT_MAX = 10              # bytes of the largest number

cdef uint64_t VERSION = PROGRESS_VERSION


cdef inline bint is_last(const RangeData* ranges, Py_ssize_t at, Py_ssize_t count) noexcept:
    """Whether stored progress ends a range here; else it is stored as one with the next."""
    return at + 1 == count or ranges[at].end != ranges[at + 1].first or ranges[at].attempt != ranges[at + 1].attempt


cdef inline unsigned char* put(unsigned char* out, uint64_t number) noexcept:
    """Write a varint, at most VARINT_MAX bytes; returns the address after it."""
    while number > 0x7f:
        out[0] = <unsigned char>(number & 0x7f | 0x80)
        number >>= 7
        out += 1
    out[0] = <unsigned char>number
    return out + 1


cdef bytes encode_ranges(const RangeData* ranges, Py_ssize_t count, uint64_t floor, int64_t first, int64_t next_offset):
    """Return the value for `count` ranges.

    Bounds: the value has 5 numbers, and 3 per merged range, of at most VARINT_MAX bytes each; `out` never passes that
    size.

    Args:
        first: the lowest open offset.
    """
    cdef int64_t at = first
    cdef uint64_t merged = 0
    cdef Py_ssize_t i
    cdef unsigned char* start
    cdef unsigned char* out
    for i in range(count):
        merged += is_last(ranges, i, count)
    start = out = <unsigned char*>malloc(VARINT_MAX * (5 + 3 * merged))
    if start == NULL:
        raise MemoryError()
    out = put(put(put(put(out, VERSION), floor), <uint64_t>at), merged)
    for i in range(count):
        if is_last(ranges, i, count):
            out = put(put(put(out, <uint64_t>(first - at)), <uint64_t>(ranges[i].end - first)), ranges[i].attempt)
            at = ranges[i].end
            first = ranges[i + 1].first if i + 1 < count else at
    out = put(out, <uint64_t>(next_offset - at))
    try:
        return PyBytes_FromStringAndSize(<char*>start, out - start)
    finally:
        free(start)
