# cython: language_level=3
"""Rows per message, without a Python object per message. Reference: rows.py.

What is not plain (our own headers but an id in ASCII, keys that are no text, other fields than texts and one map) takes
the reference's way.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8

from common._blake2b cimport (
    penstock_blake2b, penstock_blake2b_finish, penstock_blake2b_start, penstock_blake2b_update,
)

from migration.reconcile._bytes cimport big32, put32, put64

from engine.link.record import read_record
from migration.reconcile.rows import row_of_record, row_of_stored

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef extern from "siphash.h" nogil:
    void siphash128(uint64_t k0, uint64_t k1, const uint8_t *data, size_t size, uint64_t *low, uint64_t *high)

DEF ROW = 32
DEF STRING = 11
DEF MAP = 13
DEF ID_MAX = 64
DEF KEY_MAX = 4096
DEF MINUTE_MS = 60000
DEF MINUTE_MAX = 0xFFFFFFFF


cdef struct Text:
    const uint8_t *data
    Py_ssize_t size


cdef struct Scope:
    uint64_t source_first, source_end, own_first, own_end, copied_first, k0, k1


cdef struct Found:
    Text id, key, body
    bint has_key, has_repair
    int64_t time_ms
    uint8_t shown[32]


cdef Scope scope_of(scope, key) except *:
    cdef Scope found
    found.source_first, found.source_end = scope.source_first, scope.source_end
    found.own_first, found.own_end, found.copied_first = scope.own_first, scope.own_end, scope.copied_first
    found.k0, found.k1 = key
    return found


def rows_of_records(records, scope, key):
    """As the reference."""
    cdef Scope bounds = scope_of(scope, key)
    cdef Found found
    cdef list offsets = list(records.offsets), timestamps = list(records.timestamps)
    cdef list keys = list(records.keys), values = list(records.values), headers = list(records.headers)
    cdef Py_ssize_t index, total = len(offsets), size = 0
    cdef bytes id_start = scope.kafka_topic_id + int(scope.queue).to_bytes(4, "big"), row
    cdef bytes out = PyBytes_FromStringAndSize(NULL, total * ROW)
    cdef uint8_t *data = <uint8_t *> PyBytes_AS_STRING(out)
    cdef uint64_t offset
    for index in range(total):
        offset = offsets[index]
        if is_plain_record(&found, keys[index], values[index], headers[index], id_start, offset):
            if bounds.source_first <= offset < bounds.source_end:
                found.time_ms = timestamps[index]
                put_row(data + size, &found, &bounds, offset)
                size += ROW
            continue
        row = row_of_record(records, index, scope, key)
        memcpy(data + size, PyBytes_AS_STRING(row), PyBytes_GET_SIZE(row))
        size += PyBytes_GET_SIZE(row)
    return out[:size]


cdef bint is_plain_record(Found *found, key, value, headers, bytes id_start, uint64_t offset) except -1:
    """Fill `found`, whose texts point into the arguments; False: the record takes the reference's way."""
    cdef Py_ssize_t size = 0
    cdef const char *name
    cdef uint8_t assigned[16]
    found.body.data, found.body.size = NULL, 0
    if value is not None:
        if not PyBytes_CheckExact(value):
            return False
        found.body = text_of(value)
    found.has_key = key is not None
    if found.has_key:
        if not PyBytes_CheckExact(key) or PyBytes_GET_SIZE(key) > KEY_MAX or not is_utf8(text_of(key)):
            return False
        found.key = text_of(key)
    found.id.data = NULL
    for header_name, header_value in headers:
        if type(header_name) is not str or not header_name.isascii():
            return False
        name = PyUnicode_AsUTF8AndSize(header_name, &size)
        if size < 9 or memcmp(name, b"penstock-", 9) != 0:
            continue
        if size == 12 and memcmp(name + 9, b"tag", 3) == 0:
            continue
        if size != 11 or memcmp(name + 9, b"id", 2) != 0 or found.id.data is not NULL:
            return False
        if not PyBytes_CheckExact(header_value) or not 1 <= PyBytes_GET_SIZE(header_value) <= ID_MAX:
            return False
        found.id = text_of(header_value)
        if not is_ascii(found.id):
            return False
    if found.id.data is NULL:
        hash_place(id_start, offset, assigned)
        show(found, assigned)
    return True


def rows_of_stored(bytes records, Py_ssize_t count, uint64_t first_offset, int64_t stored_at_ms, scope, key):
    """As the reference."""
    cdef Scope bounds = scope_of(scope, key)
    cdef Found found
    cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(records)
    cdef Py_ssize_t at = 0, total = PyBytes_GET_SIZE(records), number, size = 0
    cdef bytes out = PyBytes_FromStringAndSize(NULL, count * ROW), row
    cdef uint8_t *made = <uint8_t *> PyBytes_AS_STRING(out)
    cdef uint64_t source_offset
    cdef uint32_t record_size
    cdef int flags
    for number in range(count):
        record_size = 0
        if total - at >= 5:
            memcpy(&record_size, data + at, 4)
        # Bounds: what follows reads the record's bytes alone, once its size is known to lie in the text.
        if total - at >= 5 and 1 <= record_size <= total - at - 4:
            flags = data[at + 4]
            if is_plain_stored(&found, data + at + 5, record_size - 1, flags):
                if flags & 4 and first_offset + number >= bounds.copied_first:
                    memcpy(&source_offset, data + at + 4 + record_size - 8, 8)
                    if bounds.source_first <= source_offset < bounds.source_end:
                        put_row(made + size, &found, &bounds, first_offset + number)
                        size += ROW
                elif bounds.own_first <= first_offset + number < bounds.own_end:
                    if not flags & 4:
                        found.time_ms = stored_at_ms
                    put_row(made + size, &found, &bounds, first_offset + number)
                    size += ROW
                at += 4 + record_size
                continue
        record, at = read_record(records, at)
        row = row_of_stored(record, first_offset + number, stored_at_ms, scope, key)
        memcpy(made + size, PyBytes_AS_STRING(row), PyBytes_GET_SIZE(row))
        size += PyBytes_GET_SIZE(row)
    return out[:size]


cdef bint is_plain_stored(Found *found, const uint8_t *data, Py_ssize_t size, int flags) noexcept:
    """Fill `found` from a record behind its flags; False: it takes the reference's way, which also finds damage."""
    if flags & ~5:  # a reply token, or a flag of later versions
        return False
    if flags & 4:
        size -= 8
    found.id.data, found.id.size = data, 0
    found.body.data, found.body.size = data, 0
    found.has_key = found.has_repair = False
    found.time_ms = -1
    if flags & 1:
        if size < 16:
            return False
        data += 16
        size -= 16
    if size < 1 or not take_fields(found, data, size):
        return False
    if found.has_repair and not flags & 4:
        return False
    if flags & 1:
        show(found, data - 16)
    return True


cdef bint take_fields(Found *found, const uint8_t *data, Py_ssize_t size) noexcept:
    """Texts and one map of a message in Thrift binary, which ends at `size`."""
    cdef Py_ssize_t at = 0
    cdef int kind, field
    cdef Text text
    while True:
        if at >= size:
            return False
        kind = data[at]
        if kind == 0:
            return at + 1 == size
        if size - at < 3:
            return False
        field = data[at + 1] << 8 | data[at + 2]
        at += 3
        if kind == STRING:
            if not take_text(&text, data, size, &at):
                return False
            if field == 2:
                found.body = text
            elif field == 3:
                found.key, found.has_key = text, True
            elif field == 6:
                found.id = text
        elif kind != MAP or field != 5 or not take_map(found, data, size, &at):
            return False


cdef bint take_map(Found *found, const uint8_t *data, Py_ssize_t size, Py_ssize_t *at) noexcept:
    cdef uint32_t count
    cdef Text name, value
    if size - at[0] < 6 or data[at[0]] != STRING or data[at[0] + 1] != STRING:
        return False
    count = big32(data + at[0] + 2)
    at[0] += 6
    while count:
        count -= 1
        if not take_text(&name, data, size, at) or not take_text(&value, data, size, at):
            return False
        if name.size == 13 and memcmp(name.data, b"penstock-time", 13) == 0:
            if not take_number(&found.time_ms, value):
                return False
        elif name.size == 15 and memcmp(name.data, b"penstock-repair", 15) == 0:
            found.has_repair = True
    return True


cdef bint take_text(Text *text, const uint8_t *data, Py_ssize_t size, Py_ssize_t *at) noexcept:
    cdef uint32_t length
    if size - at[0] < 4:
        return False
    length = big32(data + at[0])
    at[0] += 4
    if length > size - at[0]:
        return False
    text.data, text.size = data + at[0], length
    at[0] += length
    return True


cdef bint take_number(int64_t *number, Text text) noexcept:
    cdef Py_ssize_t at
    if not 1 <= text.size <= 18:
        return False
    number[0] = 0
    for at in range(text.size):
        if not 48 <= text.data[at] <= 57:
            return False
        number[0] = number[0] * 10 + text.data[at] - 48
    return True


cdef void put_row(uint8_t *row, Found *found, Scope *scope, uint64_t offset) noexcept:
    """Write ROW bytes: the caller's memory has so many per message."""
    cdef uint64_t low = 0, high = 0, key_low = scope.k0, key_high = scope.k1, content = 0, rest = 0
    cdef uint64_t minute = <uint64_t> found.time_ms // MINUTE_MS if found.time_ms > 0 else 0
    siphash128(scope.k0, scope.k1, found.id.data, found.id.size, &low, &high)
    if found.has_key:
        siphash128(scope.k0, scope.k1 ^ 1, found.key.data, found.key.size, &key_low, &key_high)
    siphash128(low ^ key_low, high ^ key_high, found.body.data, found.body.size, &content, &rest)
    put64(row, low)
    put64(row + 8, content)
    put64(row + 16, offset)
    put32(row + 24, <uint32_t> (minute if minute < MINUTE_MAX else MINUTE_MAX))
    put32(row + 28, <uint32_t> found.body.size)


cdef void show(Found *found, const uint8_t *assigned) noexcept:
    """Make the id the 32 hexadecimal digits of 16 bytes."""
    cdef int each
    cdef const uint8_t *digits = <const uint8_t *> b"0123456789abcdef"
    for each in range(16):
        found.shown[2 * each], found.shown[2 * each + 1] = digits[assigned[each] >> 4], digits[assigned[each] & 15]
    found.id.data, found.id.size = found.shown, 32


cdef void hash_place(bytes id_start, uint64_t offset, uint8_t *digest) noexcept:
    cdef penstock_blake2b state
    cdef uint8_t number[8]
    put64(number, offset)
    penstock_blake2b_start(&state, PyBytes_AS_STRING(id_start), 0, 64)
    penstock_blake2b_update(&state, PyBytes_AS_STRING(id_start), PyBytes_GET_SIZE(id_start))
    penstock_blake2b_update(&state, number, 8)
    penstock_blake2b_finish(&state, digest, 16)


cdef inline Text text_of(object data) noexcept:
    cdef Text text
    text.data, text.size = <const uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
    return text


cdef inline bint is_ascii(Text text) noexcept:
    cdef Py_ssize_t at
    for at in range(text.size):
        if text.data[at] >= 0x80:
            return False
    return True


cdef bint is_utf8(Text text) except -1:
    if is_ascii(text):
        return True
    try:
        PyUnicode_DecodeUTF8(<char *> text.data, text.size, NULL)
    except UnicodeDecodeError:
        return False
    return True
