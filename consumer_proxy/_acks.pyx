"""From the acks of a pull to the ack ranges of the link, in one pass over the frame.

The twin is acks_pure.py, whose docstrings say what each function promises.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from consumer_proxy._skip cimport be32, le32, skip_value

from consumer_proxy.layout import EXTEND_MS_MAX, REASON_BYTES_MAX, DeliverError

cdef enum:
    TOKEN_SIZE = 48
    RECEIPT_SIZE = 52
    RANGE_SIZE = 66
    RUN_SIZE = 8
    DONE = 0
    EXTEND = 3
    INVALID = 100
    STALE_RECEIPT = 106

cdef uint32_t LOCAL = 0x80000000
cdef int32_t extend_ms_max = EXTEND_MS_MAX
cdef uint32_t reason_max = REASON_BYTES_MAX

cdef struct Ack:
    const unsigned char* receipt
    uint32_t receipt_size
    int32_t verdict
    int32_t delay_ms
    bint delay_set
    const unsigned char* reason
    uint32_t reason_size


cdef class Bytes:
    """Bytes that grow at the end."""
    cdef unsigned char* start
    cdef size_t size
    cdef size_t room

    def __cinit__(self):
        self.room = 4096
        self.start = <unsigned char*> malloc(self.room)
        if self.start == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.start)

    cdef unsigned char* add(self, size_t size) except NULL:
        cdef unsigned char* moved
        if self.size + size > self.room:
            self.room = 2 * (self.size + size)
            moved = <unsigned char*> realloc(self.start, self.room)
            if moved == NULL:
                raise MemoryError
            self.start = moved
        self.size += size
        return self.start + self.size - size


cdef const unsigned char* read_ack(const unsigned char* p, const unsigned char* end, Ack* ack) noexcept nogil:
    """Behind the ack, or NULL when it is not well formed."""
    cdef const unsigned char* value
    cdef unsigned char kind, field
    ack.receipt = p
    ack.receipt_size = 0
    ack.verdict = DONE
    ack.delay_ms = -1
    ack.delay_set = False
    ack.reason = p
    ack.reason_size = 0
    while True:
        if end - p < 1:
            return NULL
        kind = p[0]
        if kind == 0:
            break
        if end - p < 3:
            return NULL
        field = p[2] if p[1] == 0 else 0
        value = p + 3
        p = skip_value(value, end, kind, 1)
        if p == NULL:
            return NULL
        if kind == 11 and field == 1:
            ack.receipt = value + 4
            ack.receipt_size = be32(value)
        elif kind == 8 and field == 2:
            ack.verdict = <int32_t> be32(value)
        elif kind == 8 and field == 3:
            ack.delay_ms = <int32_t> be32(value)
            ack.delay_set = True
        elif kind == 11 and field == 4:
            ack.reason = value + 4
            ack.reason_size = be32(value)
    if ack.verdict == DONE or ack.verdict == EXTEND:
        ack.reason_size = 0
    if ack.verdict == DONE:
        ack.delay_set = False
        ack.delay_ms = -1
    return p + 1


cdef uint32_t refusal(Ack* ack) noexcept nogil:
    if ack.receipt_size != RECEIPT_SIZE or ack.receipt[0] != 1 or ack.receipt[1] != 0:
        return STALE_RECEIPT
    if le32(ack.receipt + TOKEN_SIZE) >= le32(ack.receipt + 4):
        return STALE_RECEIPT
    if ack.verdict < DONE or ack.verdict > EXTEND:
        return INVALID
    if ack.delay_set and (ack.delay_ms < 0 or (ack.verdict == EXTEND and ack.delay_ms > extend_ms_max)):
        return INVALID
    return 0


cdef uint32_t cut_text(const unsigned char* text, uint32_t size) noexcept nogil:
    if size <= reason_max:
        return size
    size = reason_max
    while size > 0 and text[size] & 0xc0 == 0x80:
        size -= 1
    return size


cdef class Plan:
    cdef Bytes ranges
    cdef Bytes runs
    cdef uint32_t range_count
    cdef uint32_t first, count              # of the open range
    cdef size_t open_at                     # where it starts in `ranges`

    def __cinit__(self):
        self.ranges = Bytes()
        self.runs = Bytes()
        self.ranges.add(4)

    cdef bint continues(self, Ack* ack) noexcept:
        cdef const unsigned char* open_range = self.ranges.start + self.open_at
        if not self.range_count or self.first + <uint64_t> self.count != le32(ack.receipt + TOKEN_SIZE):
            return False
        if memcmp(open_range, ack.receipt, TOKEN_SIZE) != 0 or open_range[56] != ack.verdict:
            return False
        if <int32_t> le32(open_range + 60) != ack.delay_ms or (open_range[64] | open_range[65] << 8) != ack.reason_size:
            return False
        return memcmp(open_range + RANGE_SIZE, ack.reason, ack.reason_size) == 0

    cdef int extend(self, Ack* ack) except -1:
        cdef unsigned char* p
        ack.reason_size = cut_text(ack.reason, ack.reason_size)
        if self.continues(ack):
            self.count += 1
            memcpy(self.ranges.start + self.open_at + 52, &self.count, 4)
            return 0
        self.open_at = self.ranges.size
        p = self.ranges.add(RANGE_SIZE + ack.reason_size)
        self.range_count += 1
        self.first = le32(ack.receipt + TOKEN_SIZE)
        self.count = 1
        memcpy(p, ack.receipt, RECEIPT_SIZE)
        memcpy(p + 52, &self.count, 4)
        p[56] = <unsigned char> ack.verdict
        p[57] = p[58] = p[59] = 0
        memcpy(p + 60, &ack.delay_ms, 4)
        p[64] = ack.reason_size & 0xff
        p[65] = ack.reason_size >> 8
        memcpy(p + RANGE_SIZE, ack.reason, ack.reason_size)
        return 0

    cdef int answered_by(self, uint32_t answer) except -1:
        cdef unsigned char* p
        cdef uint32_t count = 1
        if self.runs.size:
            p = self.runs.start + self.runs.size - RUN_SIZE
            if le32(p + 4) == answer:
                count = le32(p) + 1
                memcpy(p, &count, 4)
                return 0
        p = self.runs.add(RUN_SIZE)
        memcpy(p, &count, 4)
        memcpy(p + 4, &answer, 4)
        return 0


def plan_acks(const unsigned char[::1] frame not None, Py_ssize_t at, Py_ssize_t count):
    """See acks_pure.plan_acks."""
    cdef const unsigned char* start = &frame[0] if frame.shape[0] else NULL
    cdef const unsigned char* end = start + frame.shape[0]
    cdef const unsigned char* p = start + at
    cdef Plan plan = Plan()
    cdef Ack ack
    cdef uint32_t refused
    cdef Py_ssize_t i
    if at < 0 or at > frame.shape[0] or count < 0:
        raise DeliverError("no such place")
    for i in range(count):
        p = read_ack(p, end, &ack)
        if p == NULL:
            raise DeliverError("an ack is not well formed")
        refused = refusal(&ack)
        if refused:
            plan.answered_by(LOCAL | refused)
        else:
            plan.extend(&ack)
            plan.answered_by(plan.range_count - 1)
    memcpy(plan.ranges.start, &plan.range_count, 4)
    ranges = PyBytes_FromStringAndSize(<char*> plan.ranges.start, <Py_ssize_t> plan.ranges.size)
    return ranges, PyBytes_FromStringAndSize(<char*> plan.runs.start, <Py_ssize_t> plan.runs.size), p - start
