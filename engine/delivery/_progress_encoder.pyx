# cython: language_level=3
"""Encoder of stored progress over an array of C structs, and its numbers. Reference: encode() in progress.py."""
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.stdlib cimport free, malloc

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from engine.delivery._range_data cimport RangeData

from engine.delivery.progress import COUNTER_BITS as LEASE_COUNTER_BITS
from engine.delivery.progress import DUE_STEP_BITS as STEP_BITS
from engine.delivery.progress import HELD_VERSION as PROGRESS_HELD_VERSION
from engine.delivery.progress import VERSION as PROGRESS_VERSION
from engine.delivery.progress import WITHHELD_VERSION as PROGRESS_WITHHELD_VERSION
from engine.delivery.progress import YOUNG_STEPS as STEPS_OF_YOUNG

cdef enum:
    VARINT_MAX = 10              # bytes of the largest number

cdef uint64_t VERSION = PROGRESS_VERSION
cdef uint64_t HELD_VERSION = PROGRESS_HELD_VERSION
cdef uint64_t WITHHELD_VERSION = PROGRESS_WITHHELD_VERSION
cdef int DUE_STEP_BITS = STEP_BITS
cdef int COUNTER_BITS = LEASE_COUNTER_BITS
cdef int64_t YOUNG_STEPS = STEPS_OF_YOUNG


cdef inline bint is_young(const RangeData* range_, int64_t young_ms) noexcept:
    return not range_.is_withheld and <int64_t>(range_.lease >> COUNTER_BITS) >= young_ms


cdef inline int64_t due_of(const RangeData* range_, int64_t now_ms, int64_t young_ms) noexcept:
    """Steps until its lease ends, rounded up; 0: it is ready."""
    cdef int64_t due
    if range_.ready or range_.due_ms == INT64_MAX or range_.due_ms <= now_ms:
        return 0
    due = (range_.due_ms - now_ms + (1 << DUE_STEP_BITS) - 1) >> DUE_STEP_BITS
    return YOUNG_STEPS if due > YOUNG_STEPS and is_young(range_, young_ms) else due


cdef inline uint64_t attempt_of(const RangeData* range_, int64_t now_ms, int64_t young_ms) noexcept:
    if range_.attempt and is_young(range_, young_ms) and due_of(range_, now_ms, young_ms):
        return range_.attempt - 1
    return range_.attempt


cdef inline bint is_last(const RangeData* ranges, Py_ssize_t at, Py_ssize_t count, int64_t now_ms, int64_t young_ms) noexcept:
    """Whether stored progress ends a range here; else it is stored as one with the next."""
    cdef const RangeData* range_ = &ranges[at]
    cdef int64_t due
    if at + 1 == count or range_.end != range_[1].first:
        return True
    if attempt_of(range_, now_ms, young_ms) != attempt_of(&range_[1], now_ms, young_ms):
        return True
    due = due_of(range_, now_ms, young_ms)
    if due != due_of(&range_[1], now_ms, young_ms) or (due and range_.is_withheld != range_[1].is_withheld):
        return True
    return due > 0 and (range_.lease ^ range_[1].lease) >> (COUNTER_BITS + DUE_STEP_BITS) != 0


cdef inline int64_t oldest_of(const RangeData* range_) noexcept:
    return <int64_t>((range_.first_lease if range_.is_restored else range_.lease) >> COUNTER_BITS)


cdef inline uint64_t zigzag(int64_t number) noexcept:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef int64_t unzigzag(int64_t number) noexcept:
    return -((number + 1) >> 1) if number & 1 else number >> 1


cdef inline unsigned char* put(unsigned char* out, uint64_t number) noexcept:
    """Write a varint, at most VARINT_MAX bytes; returns the address after it."""
    while number > 0x7f:
        out[0] = <unsigned char>(number & 0x7f | 0x80)
        number >>= 7
        out += 1
    out[0] = <unsigned char>number
    return out + 1


cdef bytes encode_ranges(const RangeData* ranges, Py_ssize_t count, uint64_t floor, int64_t first, int64_t next_offset,
                         int64_t now_ms, int64_t time_ms, int64_t lead_ms, int64_t young_ms):
    """Return the value for `count` ranges.

    Bounds: the value has 7 numbers, and 6 per merged range, of at most VARINT_MAX bytes each; `out` never passes that
    size.

    Args:
        first: the lowest open offset.
        time_ms: lease time at the monotonic time `now_ms`.
        lead_ms: time by which lease numbers are ahead of it.
        young_ms: see InFlightRange.stored().
    """
    cdef int64_t at = first
    cdef int64_t due, oldest, newest = 0
    cdef int64_t due_before = 0
    cdef int64_t newest_before = time_ms + lead_ms
    cdef uint64_t merged = 0
    cdef bint is_held = False
    cdef bint is_withheld = False
    cdef Py_ssize_t i
    cdef unsigned char* start
    cdef unsigned char* out
    for i in range(count):
        merged += is_last(ranges, i, count, now_ms, young_ms)
        is_held = is_held or due_of(&ranges[i], now_ms, young_ms) > 0
        is_withheld = is_withheld or (ranges[i].is_withheld and due_of(&ranges[i], now_ms, young_ms) > 0)
    start = out = <unsigned char*>malloc(VARINT_MAX * (7 + 6 * merged))
    if start == NULL:
        raise MemoryError()
    out = put(put(out, WITHHELD_VERSION if is_withheld else HELD_VERSION if is_held else VERSION), floor)
    if is_held:
        out = put(put(out, <uint64_t>time_ms), <uint64_t>lead_ms)
    out = put(put(out, <uint64_t>at), merged)
    oldest = INT64_MAX
    for i in range(count):
        oldest = min(oldest, oldest_of(&ranges[i]))
        newest = max(newest, <int64_t>(ranges[i].lease >> COUNTER_BITS))
        if is_last(ranges, i, count, now_ms, young_ms):
            out = put(put(out, <uint64_t>(first - at)), <uint64_t>(ranges[i].end - first))
            out = put(out, attempt_of(&ranges[i], now_ms, young_ms))
            due = due_of(&ranges[i], now_ms, young_ms)
            if is_withheld:
                out = put(out, 1 + 2 * zigzag(due - due_before) + ranges[i].is_withheld if due else 0)
                if due:
                    out = put(put(out, zigzag(newest - newest_before)), <uint64_t>(newest - oldest))
                    due_before, newest_before = due, newest
            elif is_held:
                out = put(out, <uint64_t>due)
            if due and not is_withheld:
                out = put(put(out, <uint64_t>(time_ms + lead_ms - newest)), <uint64_t>(newest - oldest))
            at = ranges[i].end
            first = ranges[i + 1].first if i + 1 < count else at
            oldest, newest = INT64_MAX, 0
    out = put(out, <uint64_t>(next_offset - at))
    try:
        return PyBytes_FromStringAndSize(<char*>start, out - start)
    finally:
        free(start)


cdef class Numbers:
    """The varints of a value.

    Bounds: `at` is compared with `size` before each byte is read.
    """

    def __init__(self, bytes value not None):
        self.value, self.at, self.size = value, 0, PyBytes_GET_SIZE(value)
        self.p = <const unsigned char*>PyBytes_AS_STRING(value)

    cdef int64_t take(self) except -1:
        """Return the next number; raises ValueError without one, and for one above 63 bits."""
        cdef uint64_t number = 0
        cdef int shift = 0
        cdef unsigned char byte
        while self.at < self.size and shift < 63:
            byte = self.p[self.at]
            self.at += 1
            number |= <uint64_t>(byte & 0x7f) << shift
            if byte < 0x80:
                return <int64_t>number
            shift += 7
        raise ValueError("no number")

    cdef int64_t take_zigzag(self) except? -1:
        """As take(), for a number with a sign."""
        return unzigzag(self.take())
