# cython: language_level=3
"""Packs fetched Kafka records as the records of one copied batch, without a Python object per record.

Reference: packing.py. A record is plain when its key and header values are UTF-8 within the limits, its value is not
null, and no header is repeated, null or of ours but id and tag. Every other one takes the reference's way.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8

from common._blake2b cimport (
    penstock_blake2b, penstock_blake2b_finish, penstock_blake2b_start, penstock_blake2b_update,
)

from kafka_bridge.copy_in.messages import ForeignRecordTooLarge
from kafka_bridge.copy_in.packing import PackedRecords, pack_one

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

DEF STRING = 11
DEF MAP = 13
DEF HEADERS_MAX = 16
DEF KEY_MAX = 4096
DEF BODY_MAX = 16000000
DEF ID_MAX = 64
DEF TAG_MAX = 128
DEF PROPERTIES_BYTES_MAX = 32768
DEF FIXED = 256  # more than all of a record but its texts: heads of fields, both ids, the time and the offset

cdef bytes PREFIX = b"penstock-"


cdef struct Text:
    const uint8_t *data
    Py_ssize_t size


cdef struct Plain:
    Text key, value, tag, own_id
    Text names[HEADERS_MAX]
    Text values[HEADERS_MAX]
    int count, has_key
    Py_ssize_t size


cdef class Packer:
    """Memory that grows with what is packed."""

    cdef uint8_t *data
    cdef size_t used, room

    def __dealloc__(self):
        free(self.data)

    cdef int reserve(self, size_t more) except -1:
        """Room for `more` bytes at `used`: every write below is preceded by it."""
        if self.used + more <= self.room:
            return 0
        cdef size_t wanted = max(2 * self.room, self.used + more, <size_t> 65536)
        cdef uint8_t *grown = <uint8_t *> realloc(self.data, wanted)
        if grown is NULL:
            raise MemoryError
        self.data, self.room = grown, wanted
        return 0

    cdef void u8(self, uint8_t number) noexcept:
        self.data[self.used] = number
        self.used += 1

    cdef void big32(self, uint32_t number) noexcept:
        cdef int shift
        for shift in range(24, -8, -8):
            self.u8(<uint8_t> (number >> shift))

    cdef void put(self, const void *data, size_t size) noexcept:
        memcpy(self.data + self.used, data, size)
        self.used += size

    cdef void text(self, Text text) noexcept:
        self.big32(<uint32_t> text.size)
        self.put(text.data, text.size)

    cdef void field(self, uint8_t number, Text text) noexcept:
        self.u8(STRING)
        self.u8(0)
        self.u8(number)
        self.text(text)


def pack(records, Py_ssize_t first, target, Py_ssize_t bytes_max):
    """See the reference."""
    cdef list offsets = list(records.offsets), timestamps = list(records.timestamps)
    cdef list keys = list(records.keys), values = list(records.values), headers = list(records.headers)
    cdef bytes topic = target.topic, id_start = target.kafka_topic_id + int(target.partition).to_bytes(4, "big")
    cdef Packer out = Packer()
    cdef Plain plain
    cdef Py_ssize_t index, count = 0, skipped = 0, total = len(offsets)
    cdef bytes found
    for index in range(first, total):
        if <Py_ssize_t> out.used >= bytes_max:
            return PackedRecords(taken(out), count, index, skipped)
        if timestamps[index] >= -1 and is_plain(&plain, keys[index], values[index], headers[index]):
            out.reserve(plain.size + len(topic) + FIXED)
            put_record(out, &plain, topic, id_start, offsets[index], timestamps[index])
            count += 1
            continue
        try:
            found = pack_one(records, index, target)
        except ForeignRecordTooLarge as fault:
            return PackedRecords(taken(out), count, index, skipped, str(fault))
        if found is None:
            skipped += 1
            continue
        out.reserve(len(found))
        out.put(PyBytes_AS_STRING(found), len(found))
        count += 1
    return PackedRecords(taken(out), count, total, skipped)


cdef bytes taken(Packer out):
    return PyBytes_FromStringAndSize(<char *> out.data, out.used)


cdef bint is_plain(Plain *plain, key, value, headers) except -1:
    """Fill `plain`, whose texts point into the arguments; False: the record takes the reference's way."""
    if not PyBytes_CheckExact(value) or PyBytes_GET_SIZE(value) > BODY_MAX:
        return False
    plain.value = text_of(value)
    plain.has_key = key is not None
    plain.size = plain.value.size
    plain.count = 0
    plain.tag.data = plain.own_id.data = NULL
    if plain.has_key:
        if not PyBytes_CheckExact(key) or PyBytes_GET_SIZE(key) > KEY_MAX or not is_utf8(text_of(key)):
            return False
        plain.key = text_of(key)
        plain.size += plain.key.size
    return not headers or take_headers(plain, headers)


cdef bint take_headers(Plain *plain, headers) except -1:
    cdef Py_ssize_t size = 0, properties_size = 0
    cdef Text name, value
    if len(headers) > HEADERS_MAX:
        return False
    for header_name, header_value in headers:
        if not PyBytes_CheckExact(header_value) or not is_encodable(header_name):
            return False
        name.data = <const uint8_t *> PyUnicode_AsUTF8AndSize(header_name, &size)
        name.size, value = size, text_of(header_value)
        if name.size >= 9 and memcmp(name.data, PyBytes_AS_STRING(PREFIX), 9) == 0:
            if not take_special(plain, name, value):
                return False
            continue
        if not is_utf8(value) or is_repeated(plain, name):
            return False
        plain.names[plain.count], plain.values[plain.count] = name, value
        plain.count += 1
        properties_size += name.size + value.size
    plain.size += properties_size + 8 * plain.count
    return properties_size <= PROPERTIES_BYTES_MAX


cdef bint is_encodable(name) except -1:
    """Whether a name has UTF-8: one with a lone surrogate has none."""
    cdef Py_ssize_t size
    if type(name) is not str:
        return False
    try:
        PyUnicode_AsUTF8AndSize(name, &size)
    except UnicodeEncodeError:
        return False
    return True


cdef bint take_special(Plain *plain, Text name, Text value) noexcept:
    """Take `penstock-id` and `penstock-tag` in ASCII, once each."""
    cdef Py_ssize_t at
    if name.size == 11 and memcmp(name.data + 9, b"id", 2) == 0 and plain.own_id.data is NULL:
        if not 1 <= value.size <= ID_MAX or not is_ascii(value):
            return False
        plain.own_id = value
    elif name.size == 12 and memcmp(name.data + 9, b"tag", 3) == 0 and plain.tag.data is NULL:
        if not 1 <= value.size <= TAG_MAX:
            return False
        for at in range(value.size):
            if not 0x20 < value.data[at] < 0x7f:
                return False
        plain.tag = value
    else:
        return False
    plain.size += value.size
    return True


cdef bint is_repeated(Plain *plain, Text name) noexcept:
    cdef int each
    for each in range(plain.count):
        if plain.names[each].size == name.size and memcmp(plain.names[each].data, name.data, name.size) == 0:
            return True
    return False


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


cdef int put_record(Packer out, Plain *plain, bytes topic, bytes id_start, uint64_t offset, int64_t timestamp) except -1:
    """Put one record; `pack` has reserved the sum of its texts, 8 bytes per property, and FIXED."""
    cdef size_t start = out.used
    cdef uint8_t assigned[16]
    cdef bint has_assigned = plain.own_id.data is NULL or assigned_form(plain.own_id, assigned)
    cdef uint32_t size
    if plain.own_id.data is NULL:
        hash_place(id_start, offset, assigned)
    out.used += 4
    out.u8(5 if has_assigned else 4)
    if has_assigned:
        out.put(assigned, 16)
    out.field(1, text_of(topic))
    out.field(2, plain.value)
    if plain.has_key:
        out.field(3, plain.key)
    if plain.tag.data is not NULL:
        out.field(4, plain.tag)
    put_properties(out, plain, timestamp)
    if not has_assigned:
        out.field(6, plain.own_id)
    out.u8(0)
    out.put(&offset, 8)
    size = <uint32_t> (out.used - start - 4)
    memcpy(out.data + start, &size, 4)
    return 0


cdef void put_properties(Packer out, Plain *plain, int64_t timestamp) noexcept:
    cdef int each, at = 20
    cdef uint8_t digits[20]
    cdef Text time_name, time_value
    if not plain.count and timestamp < 0:
        return
    out.u8(MAP)
    out.u8(0)
    out.u8(5)
    out.u8(STRING)
    out.u8(STRING)
    out.big32(plain.count + (timestamp >= 0))
    for each in range(plain.count):
        out.text(plain.names[each])
        out.text(plain.values[each])
    if timestamp < 0:
        return
    while True:
        at -= 1
        digits[at] = 48 + timestamp % 10
        timestamp //= 10
        if not timestamp:
            break
    time_name.data, time_name.size = <const uint8_t *> b"penstock-time", 13
    time_value.data, time_value.size = digits + at, 20 - at
    out.text(time_name)
    out.text(time_value)


cdef void hash_place(bytes id_start, uint64_t offset, uint8_t *digest) noexcept:
    cdef penstock_blake2b state
    cdef uint8_t number[8]
    cdef int each
    for each in range(8):
        number[each] = <uint8_t> (offset >> (56 - 8 * each))
    penstock_blake2b_start(&state, PyBytes_AS_STRING(id_start), 0, 64)
    penstock_blake2b_update(&state, PyBytes_AS_STRING(id_start), PyBytes_GET_SIZE(id_start))
    penstock_blake2b_update(&state, number, 8)
    penstock_blake2b_finish(&state, digest, 16)


cdef bint assigned_form(Text shown, uint8_t *digest) noexcept:
    """Whether an id has the form of assigned ones; `digest` gets its 16 bytes then."""
    cdef int each, high, low
    if shown.size != 32 or shown.data[12] != c"f" or shown.data[13] != c"f":
        return False
    for each in range(16):
        high, low = hex_digit(shown.data[2 * each]), hex_digit(shown.data[2 * each + 1])
        if high < 0 or low < 0:
            return False
        digest[each] = <uint8_t> (high << 4 | low)
    return True


cdef inline int hex_digit(uint8_t char) noexcept:
    if 48 <= char <= 57:
        return char - 48
    return char - 87 if 97 <= char <= 102 else -1
