# cython: language_level=3
"""Packs fetched Kafka records as the records of one copied batch, without a Python object per record.

Reference: packing.py. Records that are not plain (_plain_record.pyx) take the reference's way.

Bounds: `reserve` precedes the writes of a record, with the sum of its texts as they are written.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from common._blake2b cimport (
    penstock_blake2b, penstock_blake2b_finish, penstock_blake2b_start, penstock_blake2b_update,
)
from kafka_bridge.copy_in._plain_record cimport ForeignColumns, Header, Plain, Text, base64_size, is_plain

from kafka_bridge.copy_in.messages import ForeignRecordTooLarge
from kafka_bridge.copy_in.packing import PackedRecords, pack_one

cdef enum:
    STRING = 11
    MAP = 13
    FIXED = 512                       # more than all of a record but its texts: heads, our names, both ids, time, offset

cdef const char *HEX = b"0123456789abcdef"
cdef const char *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef struct Base64:
    uint32_t bits
    int count                         # bytes in `bits`


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

    cdef void head(self, uint8_t number) noexcept:
        self.u8(STRING)
        self.u8(0)
        self.u8(number)

    cdef void field(self, uint8_t number, Text text) noexcept:
        self.head(number)
        self.text(text)

    cdef void hex(self, Text text) noexcept:
        cdef Py_ssize_t at
        self.big32(<uint32_t> (2 * text.size))
        for at in range(text.size):
            self.u8(HEX[text.data[at] >> 4])
            self.u8(HEX[text.data[at] & 15])

    cdef void encode(self, Base64 *state, const uint8_t *data, Py_ssize_t size) noexcept:
        """Go on with a text in base64."""
        cdef Py_ssize_t at
        for at in range(size):
            state.bits = state.bits << 8 | data[at]
            state.count += 1
            if state.count == 3:
                self.digits(state.bits, 4)
                state.bits, state.count = 0, 0

    cdef void end_encoding(self, Base64 *state) noexcept:
        cdef int left = state.count
        if left:
            self.digits(state.bits << 8 * (3 - left), left + 1)
            self.put(b"==", 3 - left)

    cdef void digits(self, uint32_t bits, int count) noexcept:
        cdef int each
        for each in range(count):
            self.u8(BASE64[bits >> (18 - 6 * each) & 63])


def pack(records, Py_ssize_t first, target, Py_ssize_t bytes_max):
    """See the reference."""
    cdef ForeignColumns columns = ForeignColumns(records)
    cdef bytes topic = target.topic, id_start = target.kafka_topic_id + int(target.partition).to_bytes(4, "big")
    cdef Packer out = Packer()
    cdef Plain plain
    cdef Py_ssize_t index, count = 0, skipped = 0
    cdef int64_t offset = 0, timestamp = 0
    cdef bytes found
    for index in range(first, columns.total):
        if <Py_ssize_t> out.used >= bytes_max:
            return PackedRecords(taken(out), count, index, skipped)
        if columns.fill(&plain, index, &offset, &timestamp) and timestamp >= -1 and is_plain(&plain):
            out.reserve(plain.size + len(topic) + FIXED)
            put_record(out, &plain, topic, id_start, offset, timestamp)
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
    return PackedRecords(taken(out), count, columns.total, skipped)


cdef bytes taken(Packer out):
    return PyBytes_FromStringAndSize(<char *> out.data, out.used)


cdef inline Text text_of(bytes data) noexcept:
    cdef Text text
    text.data, text.size = <const uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
    return text


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
    if plain.has_value:
        out.field(2, plain.value)
    if plain.is_binary_key:
        out.head(3)
        out.hex(plain.key)
    elif plain.has_key:
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
    cdef int each
    cdef uint32_t count = plain.property_count + (plain.other_count > 0) + plain.is_binary_key
    count += (not plain.has_value) + (timestamp >= 0)
    if not count:
        return
    out.u8(MAP)
    out.u8(0)
    out.u8(5)
    out.u8(STRING)
    out.u8(STRING)
    out.big32(count)
    for each in range(plain.count):
        if plain.headers[each].is_property:
            out.text(plain.headers[each].name)
            out.text(plain.headers[each].value)
    if plain.other_count:
        put_others(out, plain)
    if plain.is_binary_key:
        put_key(out, plain.key)
    if not plain.has_value:
        put_name(out, b"penstock-null", 13)
        put_name(out, b"value", 5)
    if timestamp >= 0:
        put_time(out, timestamp)


cdef inline void put_name(Packer out, const char *name, uint32_t size) noexcept:
    out.big32(size)
    out.put(name, size)


cdef void put_others(Packer out, const Plain *plain) noexcept:
    """The property with the headers that cannot be properties; see foreign_headers.py."""
    cdef Base64 state
    cdef const Header *header
    cdef int32_t size
    cdef int each
    state.bits, state.count = 0, 0
    put_name(out, b"penstock-headers", 16)
    out.big32(<uint32_t> base64_size(plain.others_size))
    for each in range(plain.count):
        header = &plain.headers[each]
        if not header.is_other:
            continue
        size = <int32_t> header.name.size
        out.encode(&state, <const uint8_t *> &size, 4)
        out.encode(&state, header.name.data, header.name.size)
        size = -1 if header.is_null else <int32_t> header.value.size
        out.encode(&state, <const uint8_t *> &size, 4)
        out.encode(&state, header.value.data, header.value.size)
    out.end_encoding(&state)


cdef void put_key(Packer out, Text key) noexcept:
    cdef Base64 state
    state.bits, state.count = 0, 0
    put_name(out, b"penstock-key", 12)
    out.big32(<uint32_t> base64_size(key.size))
    out.encode(&state, key.data, key.size)
    out.end_encoding(&state)


cdef void put_time(Packer out, int64_t timestamp) noexcept:
    cdef int at = 20
    cdef uint8_t digits[20]
    while True:
        at -= 1
        digits[at] = 48 + timestamp % 10
        timestamp //= 10
        if not timestamp:
            break
    put_name(out, b"penstock-time", 13)
    put_name(out, <const char *> digits + at, 20 - at)


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
