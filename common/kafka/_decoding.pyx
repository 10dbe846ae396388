# cython: language_level=3, boundscheck=False, wraparound=False
"""Decodes the record batches of a fetch without a Python object per record. The reference, and the format: decoding.py.

Bounds: every read is preceded by a comparison with `end`, which is that of the batch's records or of the record.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from common.kafka._fetched cimport FetchedRecord, FetchedRecords, columns_of, varint

from common.kafka.decoding import malformed

cdef extern from "crc32c.h" nogil:
    void crc32c_setup()
    uint32_t crc32c_extend(uint32_t crc, const void* data, size_t size)

cdef enum:
    PREFIX_SIZE = 12
    HEAD_SIZE = 61
    CHECKED_FROM = 21
    MAGIC_AT = 16
    MAGIC = 2
    RECORD_SIZE_MIN = 7
    HEADER_SIZE_MIN = 2
    CODEC_MASK = 7
    APPEND_TIME = 8
    TRANSACTIONAL = 16
    CONTROL = 32

cdef enum RecordFault:
    FINE = 0
    NUMBER                            # cut off or too long
    RECORD_SIZE
    TOO_LONG                          # a text
    HEADER_COUNT
    NO_NAME
    BYTES_LEFT

cdef int64_t OFFSET_MAX = <int64_t>1 << 62

crc32c_setup()


cdef class BatchDecoder:
    """See the reference."""

    cdef bytes data
    cdef object decompress
    cdef bint committed_only, is_read
    cdef list aborted
    cdef set aborting
    cdef FetchedRecords waiting
    cdef Py_ssize_t at
    cdef int64_t first, last, end
    cdef object fault
    cdef readonly int64_t next_offset
    cdef readonly int32_t leader_epoch

    def __init__(self, bytes data, int64_t first, bint committed_only, aborted, decompress):
        self.data, self.first, self.committed_only, self.decompress = data, first, committed_only, decompress
        self.aborted = sorted(aborted, key=lambda each: each.first_offset)
        self.aborting, self.waiting = set(), FetchedRecords()
        self.at, self.last, self.end = 0, -1, first
        self.next_offset, self.leader_epoch = first, -1

    @property
    def is_done(self):
        return self.is_read and not self.waiting.count and self.fault is None

    def take(self, Py_ssize_t count):
        """See the reference."""
        cdef FetchedRecords taken, rest
        cdef Py_ssize_t before
        while self.waiting.count < count and not self.is_read:
            before = self.waiting.count
            try:
                self.read_batch()
            except Exception as fault:
                self.waiting.count = before
                self.fault, self.is_read = fault, True
        taken, rest = self.waiting, FetchedRecords()
        if taken.count > count:
            rest.items = <FetchedRecord*>realloc(NULL, (taken.count - count) * sizeof(FetchedRecord))
            if rest.items == NULL:
                raise MemoryError()
            rest.count = rest.room = taken.count - count
            memcpy(rest.items, taken.items + count, rest.count * sizeof(FetchedRecord))
            rest.kept, taken.count = list(taken.kept), count
        self.waiting = rest
        if not taken.count and self.fault is not None:
            raise self.fault
        self.next_offset = taken.items[taken.count - 1].offset + 1 if rest.count else self.end
        return columns_of(taken)

    cdef int read_batch(self) except -1:
        """Read one batch into `waiting`, or find that there is none."""
        cdef const unsigned char* start = <const unsigned char*>PyBytes_AS_STRING(self.data)
        cdef Py_ssize_t left = PyBytes_GET_SIZE(self.data) - self.at
        cdef const unsigned char* head = start + self.at
        cdef const unsigned char* records
        cdef int64_t base, producer, size
        cdef int32_t delta, count
        cdef uint32_t attributes
        cdef Py_ssize_t records_size
        cdef bytes opened
        if left < PREFIX_SIZE:
            self.is_read = True
            return 0
        base, size = <int64_t>big64(head), <int32_t>big32(head + 8)
        if size >= 5 and PREFIX_SIZE + size <= left and head[MAGIC_AT] < MAGIC:
            self.is_read = True
            return 0
        if size < HEAD_SIZE - PREFIX_SIZE:
            raise malformed(base, f"it has {size} bytes")
        if PREFIX_SIZE + size > left:
            self.is_read = True
            return 0
        if head[MAGIC_AT] != MAGIC:
            raise malformed(base, f"its format is {<signed char>head[MAGIC_AT]}")
        if crc32c_extend(0, head + CHECKED_FROM, PREFIX_SIZE + size - CHECKED_FROM) != big32(head + 17):
            raise malformed(base, "its checksum is wrong")
        attributes, delta, count = big16(head + 21), <int32_t>big32(head + 23), <int32_t>big32(head + 57)
        producer = <int64_t>big64(head + 43)
        if not 0 <= base <= OFFSET_MAX or delta < 0 or count < 0:
            raise malformed(base, "its offsets or its number of records are out of range")
        if self.passes(base + delta, producer, attributes & TRANSACTIONAL, attributes & CONTROL):
            records, records_size = head + HEAD_SIZE, <Py_ssize_t>(PREFIX_SIZE + size - HEAD_SIZE)
            if attributes & CODEC_MASK:
                opened = self.decompress(attributes & CODEC_MASK, PyBytes_FromStringAndSize(<const char*>records, records_size))
                records, records_size = <const unsigned char*>PyBytes_AS_STRING(opened), PyBytes_GET_SIZE(opened)
                self.waiting.kept.append(opened)
            elif not self.waiting.kept or self.waiting.kept[0] is not self.data:
                self.waiting.kept.insert(0, self.data)
            self.read_records(records, records_size, head, base, delta, count, attributes, producer)
        self.at += PREFIX_SIZE + size
        self.leader_epoch = <int32_t>big32(head + 12)
        self.end = max(self.end, base + delta + 1)
        return 0

    cdef bint passes(self, int64_t last, int64_t producer, bint is_transactional, bint is_control) except -1:
        if not self.committed_only or producer < 0:
            return not is_control
        while self.aborted and self.aborted[0].first_offset <= last:
            self.aborting.add(self.aborted.pop(0).producer)
        return is_control or not (is_transactional and self.aborting and producer in self.aborting)

    cdef int read_records(self, const unsigned char* at, Py_ssize_t size, const unsigned char* head, int64_t base,
                          int32_t delta, int32_t count, uint32_t attributes, int64_t producer) except -1:
        cdef const unsigned char* end = at + size
        cdef FetchedRecords into = self.waiting
        cdef FetchedRecord* record
        cdef FetchedRecord control
        cdef int64_t first_ms = <int64_t>big64(head + 27), last = self.last, left = 0
        cdef bint is_control = attributes & CONTROL
        cdef int32_t each
        cdef RecordFault fault = FINE
        control.key, control.key_size = NULL, 0
        if count > size // RECORD_SIZE_MIN:
            raise malformed(base, f"{count} records in {size} bytes")
        for each in range(count):
            into.make_room()
            record = &into.items[into.count]
            at = read_record(at, end, record, &fault, &left)
            if at == NULL:
                raise malformed(base, described(fault, left))
            record.offset = <int64_t>(<uint64_t>base + <uint64_t>record.offset)
            if attributes & APPEND_TIME:
                record.timestamp = <int64_t>big64(head + 35)
            else:
                record.timestamp = <int64_t>(<uint64_t>first_ms + <uint64_t>record.timestamp)
            if not last < record.offset <= base + delta:
                raise malformed(base, f"offset {record.offset} after {last}")
            last = record.offset
            if is_control:
                if each == 0:
                    control = record[0]
            elif record.offset >= self.first:
                into.count += 1
        if at != end:
            raise malformed(base, f"{end - at} bytes after its last record")
        if not is_control:
            self.last = last
        elif count and control.key != NULL and control.key_size >= 4 and big16(control.key + 2) == 0:
            self.aborting.discard(producer)
        return 0


cdef str described(RecordFault fault, int64_t left):
    if fault == NUMBER:
        return "a number that is cut off or too long"
    if fault == RECORD_SIZE:
        return f"a record of {left} bytes"
    if fault == TOO_LONG:
        return f"{left} bytes where fewer are left"
    if fault == HEADER_COUNT:
        return f"a record with {left} headers"
    if fault == NO_NAME:
        return "a header without a name"
    return f"{left} bytes after a record's headers"


cdef inline const unsigned char* read_record(const unsigned char* at, const unsigned char* end, FetchedRecord* record,
                                             RecordFault* fault, int64_t* told) noexcept nogil:
    """Read a record at `at`, its offset and timestamp as deltas; returns its end, or NULL with a fault."""
    cdef int64_t number = 0, each
    fault[0] = NUMBER
    at = varint(at, end, &number)
    if at == NULL:
        return NULL
    if not RECORD_SIZE_MIN - 1 <= number <= end - at:
        fault[0], told[0] = RECORD_SIZE, number
        return NULL
    end = at + number
    at = varint(at + 1, end, &record.timestamp)      # after the attributes, of which none is in use
    if at == NULL:
        return NULL
    at = varint(at, end, &record.offset)
    if at == NULL:
        return NULL
    at = text(at, end, &record.key, &record.key_size, fault, told)
    if at == NULL:
        return NULL
    at = text(at, end, &record.value, &record.value_size, fault, told)
    if at == NULL:
        return NULL
    fault[0] = NUMBER
    at = varint(at, end, &number)
    if at == NULL:
        return NULL
    if not 0 <= number <= (end - at) // HEADER_SIZE_MIN:
        fault[0], told[0] = HEADER_COUNT, number
        return NULL
    record.headers, record.header_count = at, <uint32_t>number
    for each in range(record.header_count):
        at = walk_header(at, end, fault, told)
        if at == NULL:
            return NULL
    record.headers_size = <uint32_t>(at - record.headers)
    if at != end:
        fault[0], told[0] = BYTES_LEFT, end - at
        return NULL
    return at


cdef inline const unsigned char* walk_header(const unsigned char* at, const unsigned char* end, RecordFault* fault,
                                             int64_t* told) noexcept nogil:
    cdef const unsigned char* data = NULL
    cdef uint32_t size = 0
    at = text(at, end, &data, &size, fault, told)
    if at == NULL:
        return NULL
    if data == NULL:
        fault[0] = NO_NAME
        return NULL
    return text(at, end, &data, &size, fault, told)


cdef inline const unsigned char* text(const unsigned char* at, const unsigned char* end, const unsigned char** data,
                                      uint32_t* size, RecordFault* fault, int64_t* told) noexcept nogil:
    """Read a size and so many bytes; returns their end, or NULL with a fault."""
    cdef int64_t number = 0
    fault[0] = NUMBER
    at = varint(at, end, &number)
    if at == NULL:
        return NULL
    data[0], size[0] = NULL, 0
    if number < 0:
        return at
    if number > end - at:
        fault[0], told[0] = TOO_LONG, number
        return NULL
    data[0], size[0] = at, <uint32_t>number
    return at + number


cdef inline uint32_t big16(const unsigned char* at) noexcept nogil:
    return <uint32_t>at[0] << 8 | at[1]


cdef inline uint32_t big32(const unsigned char* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline uint64_t big64(const unsigned char* at) noexcept nogil:
    return <uint64_t>big32(at) << 32 | big32(at + 4)
