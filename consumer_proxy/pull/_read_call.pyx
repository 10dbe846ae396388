"""Decodes a frame into a Call and merges its acks into ranges, without one object per ack.

Reference: read_call.py, whose docstrings specify each function. Bounds: `walk_pull` has checked that every
span that it returns lies within the frame.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from common.wire._walk cimport HAS_TOPICS_AFTER, Ack, PullCall, Span, walk_pull
from common.wire._skip cimport le16, le32
from engine.link.constants cimport (
    ACK_COUNT_AT, ACK_DELAY_AT, ACK_REASON_SIZE_AT, ACK_SIZE, ACK_VERDICT_AT, CODE_INVALID, CODE_STALE_RECEIPT,
    RECEIPT_SIZE, TOKEN_SIZE, TOKEN_VERSION, VERDICT_DONE, VERDICT_EXTEND, VERDICT_RELEASE,
)

from common.wire.calls import ACKS_MAX
from common.wire.faults import ACK_FAULTS, WireError
from consumer_proxy.call import Call
from consumer_proxy.pull.reply_format import EXTEND_MS_MAX, REASON_BYTES_MAX

cdef enum:
    RUN_SIZE = 8
    FAULTS = 256

cdef uint32_t LOCAL = 0x80000000
cdef int32_t extend_ms_max = EXTEND_MS_MAX
cdef uint32_t reason_max = REASON_BYTES_MAX
cdef uint32_t acks_max = ACKS_MAX
cdef uint32_t[FAULTS] fault_codes
# One buffer per process: a call into this module fills and reads it without a switch of greenlets.
cdef Ack* acks = <Ack*> malloc(acks_max * sizeof(Ack))
if acks == NULL:
    raise MemoryError
for fault, (code, _) in ACK_FAULTS.items():
    fault_codes[<int> fault] = code


cdef class Bytes:
    """Bytes that grow at the end."""
    cdef unsigned char* start
    cdef size_t size
    cdef size_t room

    def __cinit__(self):
        self.room = 1024
        self.start = <unsigned char*> malloc(self.room)
        if self.start == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.start)

    cdef unsigned char* add(self, size_t size) except NULL:
        cdef unsigned char* moved
        if self.size + size > self.room:
            moved = <unsigned char*> realloc(self.start, 2 * (self.size + size))
            if moved == NULL:
                raise MemoryError
            self.room = 2 * (self.size + size)
            self.start = moved
        self.size += size
        return self.start + self.size - size

    cdef bytes taken(self):
        return PyBytes_FromStringAndSize(<char*> self.start, <Py_ssize_t> self.size)


cdef uint32_t refusal(const unsigned char* frame, Ack* ack) noexcept nogil:
    cdef const unsigned char* receipt = frame + ack.receipt_start
    if ack.fault:
        return fault_codes[ack.fault & (FAULTS - 1)]
    if ack.receipt_size != RECEIPT_SIZE or receipt[0] != TOKEN_VERSION or receipt[1] != 0:
        return CODE_STALE_RECEIPT
    if le32(receipt + TOKEN_SIZE) >= le32(receipt + 4):
        return CODE_STALE_RECEIPT
    if ack.verdict == VERDICT_EXTEND and ack.delay_ms > extend_ms_max:
        return CODE_INVALID
    return 0


cdef uint32_t cut_text(const unsigned char* text, uint32_t size) noexcept nogil:
    if size <= reason_max:
        return size
    size = reason_max
    while size > 0 and text[size] & 0xc0 == 0x80:
        size -= 1
    return size


cdef class RangeBuilder:
    """Ranges under construction; the last one is open for the next ack."""
    cdef Bytes ranges
    cdef Bytes runs
    cdef uint32_t range_count
    cdef uint32_t first, count
    cdef size_t open_at

    def __cinit__(self):
        self.ranges = Bytes()
        self.runs = Bytes()
        self.ranges.add(4)

    cdef bint continues(self, const unsigned char* receipt, Ack* ack, const unsigned char* reason) noexcept:
        cdef const unsigned char* open_range = self.ranges.start + self.open_at
        if not self.range_count or self.first + <uint64_t> self.count != le32(receipt + TOKEN_SIZE):
            return False
        if memcmp(open_range, receipt, TOKEN_SIZE) != 0 or open_range[ACK_VERDICT_AT] != ack.verdict:
            return False
        if <int32_t> le32(open_range + ACK_DELAY_AT) != ack.delay_ms:
            return False
        if le16(open_range + ACK_REASON_SIZE_AT) != ack.reason_size:
            return False
        return memcmp(open_range + ACK_SIZE, reason, ack.reason_size) == 0

    cdef int extend(self, const unsigned char* frame, Ack* ack) except -1:
        cdef const unsigned char* receipt = frame + ack.receipt_start
        cdef const unsigned char* reason = frame + ack.reason_start
        cdef unsigned char* p
        if ack.verdict == VERDICT_DONE or ack.verdict == VERDICT_RELEASE:
            ack.delay_ms = -1
        if ack.verdict == VERDICT_DONE or ack.verdict >= VERDICT_EXTEND:
            ack.reason_size = 0
        else:
            ack.reason_size = cut_text(reason, ack.reason_size)
        if self.continues(receipt, ack, reason):
            self.count += 1
            memcpy(self.ranges.start + self.open_at + ACK_COUNT_AT, &self.count, 4)
            return 0
        self.open_at = self.ranges.size
        p = self.ranges.add(ACK_SIZE + ack.reason_size)
        self.range_count += 1
        self.first = le32(receipt + TOKEN_SIZE)
        self.count = 1
        memcpy(p, receipt, RECEIPT_SIZE)
        memcpy(p + ACK_COUNT_AT, &self.count, 4)
        p[ACK_VERDICT_AT] = <unsigned char> ack.verdict
        p[ACK_VERDICT_AT + 1] = p[ACK_VERDICT_AT + 2] = p[ACK_VERDICT_AT + 3] = 0
        memcpy(p + ACK_DELAY_AT, &ack.delay_ms, 4)
        p[ACK_REASON_SIZE_AT] = ack.reason_size & 0xff
        p[ACK_REASON_SIZE_AT + 1] = ack.reason_size >> 8
        memcpy(p + ACK_SIZE, reason, ack.reason_size)
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

    cdef int take(self, const unsigned char* frame, Ack* ack) except -1:
        cdef uint32_t refused = refusal(frame, ack)
        if refused:
            return self.answered_by(LOCAL | refused)
        self.extend(frame, ack)
        return self.answered_by(self.range_count - 1)


def read_call(bytes frame not None):
    """See read_call.read_call."""
    cdef const unsigned char* p = frame
    cdef PullCall call
    cdef RangeBuilder builder
    cdef uint32_t i
    cdef Span first, last
    cdef bytes ranges = b"\0\0\0\0", runs = b""
    if walk_pull(p, len(frame), &call, acks, acks_max) != 0:
        raise WireError(call.error, call.error_at, call.error_field, call.seqid)
    if call.ack_count:
        builder = RangeBuilder()
        for i in range(call.ack_count):
            builder.take(p, &acks[i])
        memcpy(builder.ranges.start, &builder.range_count, 4)
        ranges, runs = builder.ranges.taken(), builder.runs.taken()
    first = last = call.topics[0]
    if call.topic_count:
        last = call.topics[call.topic_count - 1]
    return Call(
        call.seqid,
        call.fault,
        frame[call.credential_start:call.credential_start + call.credential_size],
        frame[call.group_start:call.group_start + call.group_size],
        frame[first.start - 4:last.start + last.size] if call.topic_count else b"",
        call.position_count,
        bool(call.flags & HAS_TOPICS_AFTER),
        call.max_messages,
        call.max_bytes,
        call.wait_ms,
        call.invisible_ms,
        call.ack_count,
        ranges,
        runs,
    )
