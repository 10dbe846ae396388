"""Reads the deliveries of a reply into buffers of Arrow columns, without a Python object per message.

Reference: deliveries.py, whose docstrings specify each function. The first pass notes where the fields of every
delivery lie; then each wanted column is measured, allocated once and filled.

Bounds: `scan` checks every place against the end of the frame and leaves slices inside it only; the columns are filled
from these slices. The number of rows is bounded by the frame's size before memory for them is allocated. Offsets are
32 bits, and a frame is smaller than 2 GiB.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from common.filter._match cimport Filter
from common.wire._skip cimport be16, be32, skip_value

from pipeline.errors import ReplyError
from pipeline.reply.columns import Deliveries
from pipeline.reply.row_filter import ALL_ROWS, compiled

cdef extern from *:
    """
    static inline uint64_t be64(const unsigned char* p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
    """
    uint64_t be64(const unsigned char* p) nogil

cdef enum:
    COLUMNS = 11
    TOPIC = 0
    QUEUE = 1
    OFFSET = 2
    ID = 3
    KEY = 4
    TAG = 5
    BODY = 6
    PROPERTIES = 7
    STORED_AT = 8
    ATTEMPT = 9
    SOURCE = 10
    I32 = 8
    I64 = 10
    STRING = 11
    STRUCT = 12
    MAP = 13
    LIST = 15
    DELIVERY_BYTES_MIN = 54
    NOT_A_COLUMN = 255

cdef struct Slice:
    uint32_t start                  # 0: the field is unset
    uint32_t size

cdef struct Row:
    Slice fields[COLUMNS]
    Slice message

cdef struct Scan:
    const unsigned char* base
    const unsigned char* end
    const unsigned char* bad        # near here the frame is malformed

cdef uint32_t CALL_REPLY = 0x80010002
cdef uint8_t[11] OF_DELIVERY = [255, 255, QUEUE, OFFSET, ATTEMPT, STORED_AT, ID, 255, 255, 255, SOURCE]
cdef uint8_t[6] OF_MESSAGE = [255, TOPIC, BODY, KEY, TAG, PROPERTIES]
cdef uint8_t[COLUMNS] KINDS = [STRING, I32, I64, STRING, STRING, STRING, STRING, MAP, I64, I32, STRING]


cdef inline uint8_t column_of(bint is_message, uint32_t field) noexcept nogil:
    if is_message:
        return OF_MESSAGE[field] if field < 6 else NOT_A_COLUMN
    return OF_DELIVERY[field] if field < 11 else NOT_A_COLUMN


cdef const unsigned char* scan_struct(Scan* scan, const unsigned char* p, bint is_message, Row* row) noexcept nogil:
    """Note the known fields of a Delivery or its Message; returns its end, or NULL."""
    cdef const unsigned char* value
    cdef uint8_t kind, column
    cdef uint32_t field
    while True:
        scan.bad = p
        if scan.end - p < 1:
            return NULL
        kind = p[0]
        if kind == 0:
            return p + 1
        if scan.end - p < 3:
            return NULL
        field = be16(p + 1)
        value = p + 3
        if not is_message and kind == STRUCT and field == 7:
            p = scan_struct(scan, value, True, row)
            if p == NULL:
                return NULL
            row.message.start = <uint32_t> (value - scan.base)
            row.message.size = <uint32_t> (p - value)
            continue
        p = skip_value(value, scan.end, kind, 2)
        if p == NULL:
            return NULL
        column = column_of(is_message, field)
        if column == NOT_A_COLUMN or KINDS[column] != kind:
            continue
        if kind == MAP and p > value + 6 and (value[0] != STRING or value[1] != STRING):
            return NULL
        if kind == STRING:
            value += 4
        row.fields[column].start = <uint32_t> (value - scan.base)
        row.fields[column].size = <uint32_t> (p - value)


cdef const unsigned char* find_list(Scan* scan) noexcept nogil:
    """The header of the list of deliveries, or NULL."""
    cdef const unsigned char* p = scan.base
    cdef uint8_t kind
    cdef uint32_t field
    scan.bad = p
    if scan.end - p < 12 or be32(p) != CALL_REPLY:
        return NULL
    p = skip_value(p + 4, scan.end, STRING, 1)
    if p == NULL or scan.end - p < 4 + 3 or p[4] != STRUCT or be16(p + 5) != 0:
        return NULL
    p += 7
    while True:
        scan.bad = p
        if scan.end - p < 3 or p[0] == 0:
            return NULL
        kind, field = p[0], be16(p + 1)
        if kind == LIST and field == 2:
            return p + 3
        p = skip_value(p + 3, scan.end, kind, 1)
        if p == NULL:
            return NULL


cdef int passes(const unsigned char* base, Row* row, int64_t from_ms, int64_t to_ms, Filter test) except -1:
    cdef int64_t stored_ms
    if row.fields[STORED_AT].start:
        stored_ms = <int64_t> be64(base + row.fields[STORED_AT].start)
        if stored_ms < from_ms or stored_ms >= to_ms:
            return False
    if test is None or not row.message.start:
        return True
    return test.matches(<const uint8_t*> base + row.message.start, row.message.size)


cdef int keep(const unsigned char* base, Row* rows, uint32_t* count, row_filter) except -1:
    """Move the rows that pass to the front."""
    cdef int64_t from_ms = row_filter.from_ms, to_ms = row_filter.to_ms
    cdef Filter test = compiled(row_filter.texts)
    cdef uint32_t index, kept = 0
    for index in range(count[0]):
        if passes(base, &rows[index], from_ms, to_ms, test):
            if kept != index:
                rows[kept] = rows[index]
            kept += 1
    count[0] = kept
    return 0


def read_deliveries(bytes frame not None, uint32_t wanted, row_filter=ALL_ROWS):
    cdef Scan scan
    cdef const unsigned char* p
    cdef Py_ssize_t start
    cdef uint32_t count, scanned, index
    cdef Row* rows
    scan.base = <const unsigned char*> PyBytes_AS_STRING(frame)
    scan.end = scan.base + len(frame)
    if len(frame) >= 0x7fffffff:
        raise ReplyError("reply: larger than 2 GiB")
    p = find_list(&scan)
    if p == NULL or scan.end - p < 5 or p[0] != STRUCT:
        raise ReplyError(f"reply: malformed near byte {scan.bad - scan.base}")
    start = p - scan.base
    count = be32(p + 1)
    p += 5
    if count > <uint64_t> (scan.end - p) // DELIVERY_BYTES_MIN:
        raise ReplyError(f"reply: malformed near byte {start}")
    rows = <Row*> malloc(<size_t> (count + 1) * sizeof(Row))
    if rows == NULL:
        raise MemoryError()
    try:
        with nogil:
            memset(rows, 0, <size_t> (count + 1) * sizeof(Row))
            for index in range(count):
                p = scan_struct(&scan, p, False, &rows[index])
                if p == NULL:
                    break
        if p == NULL:
            raise ReplyError(f"reply: malformed near byte {scan.bad - scan.base}")
        scanned = count
        if row_filter != ALL_ROWS:
            keep(scan.base, rows, &count, row_filter)
        columns = [fill(scan.base, rows, count, number) if wanted >> number & 1 else None for number in range(COLUMNS)]
        return Deliveries(count, columns, start, p - scan.base, scanned)
    finally:
        free(rows)


cdef tuple fill(const unsigned char* base, Row* rows, uint32_t count, int number):
    if KINDS[number] == STRING:
        return (validity(rows, count, number), *texts(base, rows, count, number))
    if KINDS[number] == MAP:
        return (validity(rows, count, number), *maps(base, rows, count))
    if KINDS[number] == I32:
        return (validity(rows, count, number), ints(base, rows, count, number))
    return (validity(rows, count, number), longs(base, rows, count, number))


cdef validity(Row* rows, uint32_t count, int number):
    cdef uint32_t index, nulls = 0
    cdef unsigned char* bits
    for index in range(count):
        nulls += rows[index].fields[number].start == 0
    if not nulls:
        return None
    made = PyBytes_FromStringAndSize(NULL, (count + 7) // 8)
    bits = <unsigned char*> PyBytes_AS_STRING(made)
    memset(bits, 0, (count + 7) // 8)
    for index in range(count):
        if rows[index].fields[number].start:
            bits[index >> 3] |= 1 << (index & 7)
    return made


cdef bytes ints(const unsigned char* base, Row* rows, uint32_t count, int number):
    cdef bytes made = PyBytes_FromStringAndSize(NULL, 4 * <Py_ssize_t> count)
    cdef int32_t* out = <int32_t*> PyBytes_AS_STRING(made)
    cdef uint32_t index
    for index in range(count):
        out[index] = <int32_t> be32(base + rows[index].fields[number].start) if rows[index].fields[number].start else 0
    return made


cdef bytes longs(const unsigned char* base, Row* rows, uint32_t count, int number):
    cdef bytes made = PyBytes_FromStringAndSize(NULL, 8 * <Py_ssize_t> count)
    cdef uint64_t* out = <uint64_t*> PyBytes_AS_STRING(made)
    cdef uint32_t index
    cdef uint64_t factor = 1000 if number == STORED_AT else 1
    for index in range(count):
        out[index] = be64(base + rows[index].fields[number].start) * factor if rows[index].fields[number].start else 0
    return made


cdef tuple texts(const unsigned char* base, Row* rows, uint32_t count, int number):
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, 4 * (<Py_ssize_t> count + 1))
    cdef int32_t* ends = <int32_t*> PyBytes_AS_STRING(offsets)
    cdef bytes data
    cdef char* out
    cdef uint32_t index, total = 0
    cdef Slice* text
    ends[0] = 0
    for index in range(count):
        total += rows[index].fields[number].size
        ends[index + 1] = <int32_t> total
    data = PyBytes_FromStringAndSize(NULL, total)
    out = PyBytes_AS_STRING(data)
    with nogil:
        for index in range(count):
            text = &rows[index].fields[number]
            memcpy(out, base + text.start, text.size)
            out += text.size
    return offsets, data


cdef tuple maps(const unsigned char* base, Row* rows, uint32_t count):
    """Entries are sound: `scan_struct` stepped over every name and value. An unset map has no entry."""
    cdef bytes counts = PyBytes_FromStringAndSize(NULL, 4 * (<Py_ssize_t> count + 1))
    cdef int32_t* entries_to = <int32_t*> PyBytes_AS_STRING(counts)
    cdef uint32_t index, entry, size, total = 0, names_size = 0, values_size = 0
    cdef const unsigned char* p
    entries_to[0] = 0
    for index in range(count):
        if rows[index].fields[PROPERTIES].start:
            p = base + rows[index].fields[PROPERTIES].start + 2
            size = be32(p)
            total += size
            p += 4
            for entry in range(size):
                names_size += be32(p)
                p += 4 + be32(p)
                values_size += be32(p)
                p += 4 + be32(p)
        entries_to[index + 1] = <int32_t> total
    return (counts, *map_texts(base, rows, count, total, names_size, values_size))


cdef tuple map_texts(const unsigned char* base, Row* rows, uint32_t count, uint32_t total, uint32_t names_size,
                     uint32_t values_size):
    cdef bytes name_offsets = PyBytes_FromStringAndSize(NULL, 4 * (<Py_ssize_t> total + 1))
    cdef bytes value_offsets = PyBytes_FromStringAndSize(NULL, 4 * (<Py_ssize_t> total + 1))
    cdef bytes names = PyBytes_FromStringAndSize(NULL, names_size)
    cdef bytes values = PyBytes_FromStringAndSize(NULL, values_size)
    cdef int32_t* names_to = <int32_t*> PyBytes_AS_STRING(name_offsets)
    cdef int32_t* values_to = <int32_t*> PyBytes_AS_STRING(value_offsets)
    cdef char* name_out = PyBytes_AS_STRING(names)
    cdef char* value_out = PyBytes_AS_STRING(values)
    cdef uint32_t index, entry, size, done = 0
    cdef const unsigned char* p
    names_to[0] = values_to[0] = 0
    for index in range(count):
        if not rows[index].fields[PROPERTIES].start:
            continue
        p = base + rows[index].fields[PROPERTIES].start + 6
        for entry in range(be32(p - 4)):
            size = be32(p)
            memcpy(name_out, p + 4, size)
            name_out += size
            p += 4 + size
            names_to[done + 1] = names_to[done] + <int32_t> size
            size = be32(p)
            memcpy(value_out, p + 4, size)
            value_out += size
            p += 4 + size
            values_to[done + 1] = values_to[done] + <int32_t> size
            done += 1
    return name_offsets, names, value_offsets, values
