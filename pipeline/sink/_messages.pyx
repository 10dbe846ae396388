"""Messages of `send` from Arrow buffers, without a Python object per message. Reference: messages.py.

Bounds: every offset of a text is checked against the size of its bytes, and every row against the size of its offsets
and validity, before it is read; wrong buffers raise ValueError. Messages are measured first and written into memory of
that size.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from common.wire._skip cimport be16, be32, put_be32, skip_value

from common.contract import decode_reply
from pipeline.errors import ReplyError
from pipeline.sink.messages import SendResults, Encoded, RowResult

cdef enum:
    STRING = 11
    STRUCT = 12
    MAP = 13
    LIST = 15
    FAILED_FROM = 100
    DUPLICATE = 2

cdef uint32_t REPLY = 0x80010002


cdef class Memory:
    """A buffer that is held while its bytes are read."""

    cdef Py_buffer view
    cdef const uint8_t* data
    cdef Py_ssize_t size

    def __cinit__(self, held):
        PyObject_GetBuffer(held, &self.view, PyBUF_SIMPLE)
        self.data = <const uint8_t*> self.view.buf
        self.size = self.view.len

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef bint bounds(Memory validity, Memory offsets, int64_t at, int64_t* low, int64_t* high) except -1:
    """Whether a value of a column of variable length is not null; its offsets are stored. They are not checked."""
    if validity is not None:
        if at >> 3 >= validity.size:
            raise ValueError("validity ends before the row")
        if not validity.data[at >> 3] >> (at & 7) & 1:
            return False
    if 4 * at + 8 > offsets.size:
        raise ValueError("offsets end before the row")
    low[0] = (<const int32_t*> offsets.data)[at]
    high[0] = (<const int32_t*> offsets.data)[at + 1]
    return True


cdef class Text:
    """A text column."""

    cdef Memory validity, offsets, data
    cdef int64_t first

    def __cinit__(self, column):
        validity, offsets, data, self.first = column
        self.validity = None if validity is None else Memory(validity)
        self.offsets = Memory(offsets)
        self.data = Memory(data)

    cdef int64_t find(self, int64_t row, const uint8_t** start) except -2:
        """The size of the row's text, whose place is stored; -1 when it is null."""
        cdef int64_t low = 0, high = 0
        if not bounds(self.validity, self.offsets, self.first + row, &low, &high):
            return -1
        if low < 0 or high < low or high > self.data.size:
            raise ValueError("an offset is outside of the bytes")
        start[0] = self.data.data + low
        return high - low


cdef class Maps:
    """A column of maps."""

    cdef Memory validity, offsets
    cdef int64_t first
    cdef Text names, values

    def __cinit__(self, column):
        validity, offsets, self.first, names, values = column
        self.validity = None if validity is None else Memory(validity)
        self.offsets = Memory(offsets)
        self.names, self.values = Text(names), Text(values)

    cdef int64_t find(self, int64_t row, int64_t* start) except -2:
        """The number of the row's entries, the first of which is stored; -1 when the map is null."""
        cdef int64_t low = 0, high = 0
        if not bounds(self.validity, self.offsets, self.first + row, &low, &high):
            return -1
        if low < 0 or high < low:
            raise ValueError("offsets of entries fall")
        start[0] = low
        return high - low


cdef class MessageWriter:
    """Measures with `out` NULL, else writes; both take the same steps."""

    cdef Text topic, body, key, tag, id
    cdef Maps properties

    def __cinit__(self, columns):
        self.topic = None if columns.topic is None else Text(columns.topic)
        self.body = None if columns.body is None else Text(columns.body)
        self.key = None if columns.key is None else Text(columns.key)
        self.tag = None if columns.tag is None else Text(columns.tag)
        self.id = None if columns.id is None else Text(columns.id)
        self.properties = None if columns.properties is None else Maps(columns.properties)

    cdef int64_t message(self, int64_t row, uint8_t* out) except -1:
        cdef int64_t size = 0
        size += put_field(self.topic, 1, row, out)
        size += put_field(self.body, 2, row, at(out, size))
        size += put_field(self.key, 3, row, at(out, size))
        size += put_field(self.tag, 4, row, at(out, size))
        size += self.put_properties(row, at(out, size))
        size += put_field(self.id, 6, row, at(out, size))
        if out != NULL:
            out[size] = 0
        return size + 1

    cdef int64_t put_properties(self, int64_t row, uint8_t* out) except -1:
        cdef int64_t entry, start = 0, count, size = 9
        if self.properties is None:
            return 0
        count = self.properties.find(row, &start)
        if count < 0:
            return 0
        if out != NULL:
            out[0], out[1], out[2], out[3], out[4] = MAP, 0, 5, STRING, STRING
            put_be32(out + 5, <uint32_t> count)
        for entry in range(start, start + count):
            size += put_text(self.properties.names, entry, at(out, size))
            size += put_text(self.properties.values, entry, at(out, size))
        return size


cdef inline uint8_t* at(uint8_t* out, int64_t size) noexcept:
    return NULL if out == NULL else out + size


cdef int64_t put_field(Text column, uint8_t field, int64_t row, uint8_t* out) except -1:
    """The field with a row's text; nothing when the column is missing or the text is null."""
    cdef const uint8_t* start = NULL
    cdef int64_t size
    if column is None:
        return 0
    size = column.find(row, &start)
    if size < 0:
        return 0
    if out != NULL:
        out[0], out[1], out[2] = STRING, 0, field
        put_be32(out + 3, <uint32_t> size)
        memcpy(out + 7, start, size)
    return size + 7


cdef int64_t put_text(Text column, int64_t row, uint8_t* out) except -1:
    """A name or value of a map; a null one is empty."""
    cdef const uint8_t* start = NULL
    cdef int64_t size = column.find(row, &start)
    if size < 0:
        size = 0
    if out != NULL:
        put_be32(out, <uint32_t> size)
        memcpy(out + 4, start, size)
    return size + 4


def encode_messages(columns, const uint32_t[:] rows, Py_ssize_t first, int64_t bytes_max):
    cdef MessageWriter writer = MessageWriter(columns)
    cdef Py_ssize_t index = first
    cdef int64_t size, total = 0
    cdef bytes made
    cdef uint8_t* out
    while index < rows.shape[0]:
        size = writer.message(rows[index], NULL)
        if index > first and total + size > bytes_max:
            break
        total += size
        index += 1
    made = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t*> PyBytes_AS_STRING(made)
    for row in range(first, index):
        out += writer.message(rows[row], out)
    return Encoded(made, index - first)


cdef struct Outcome:
    int32_t code
    int32_t retry_after_ms
    const uint8_t* error
    uint32_t error_size


cdef const uint8_t* read_outcome(const uint8_t* p, const uint8_t* end, Outcome* outcome) noexcept nogil:
    """The end of a SendResult, or NULL."""
    cdef uint8_t kind
    cdef uint32_t field
    cdef const uint8_t* value
    outcome.code = outcome.retry_after_ms = 0
    outcome.error, outcome.error_size = NULL, 0
    while True:
        if end - p < 1:
            return NULL
        kind = p[0]
        if kind == 0:
            return p + 1
        if end - p < 3:
            return NULL
        field, value = be16(p + 1), p + 3
        p = skip_value(value, end, kind, 2)
        if p == NULL:
            return NULL
        if kind == 8 and field == 1:
            outcome.code = <int32_t> be32(value)
        elif kind == 8 and field == 5:
            outcome.retry_after_ms = <int32_t> be32(value)
        elif kind == STRING and field == 6:
            outcome.error, outcome.error_size = value + 4, be32(value)


cdef const uint8_t* find_results(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """The header of the list of results, which the proxy writes first; NULL when it is elsewhere."""
    if end - p < 12 or be32(p) != REPLY:
        return NULL
    p = skip_value(p + 4, end, STRING, 1)
    if p == NULL or end - p < 4 + 3 + 3 + 5 or p[4] != STRUCT or be16(p + 5) != 0:
        return NULL
    p += 7
    if p[0] != LIST or be16(p + 1) != 1 or p[3] != STRUCT:
        return NULL
    return p + 4


def read_results(bytes frame not None):
    cdef const uint8_t* p = <const uint8_t*> PyBytes_AS_STRING(frame)
    cdef const uint8_t* end = p + len(frame)
    cdef uint32_t count, index, stored = 0, duplicates = 0
    cdef Outcome outcome
    p = find_results(p, end)
    if p == NULL:
        decode_reply(frame)  # raises for an exception
        raise ReplyError("reply: not the results of a send")
    count = be32(p)
    p += 4
    failed = []
    for index in range(count):
        p = read_outcome(p, end, &outcome)
        if p == NULL:
            raise ReplyError(f"reply: result {index} of {count} is malformed")
        if outcome.code < FAILED_FROM:
            stored += 1
            duplicates += outcome.code == DUPLICATE
        else:
            error = (<const char*> outcome.error)[:outcome.error_size].decode("utf-8", "replace")
            failed.append(RowResult(index, outcome.code, outcome.retry_after_ms, error))
    return SendResults(stored, duplicates, failed)
