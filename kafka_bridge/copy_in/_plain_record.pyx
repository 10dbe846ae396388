# cython: language_level=3, boundscheck=False, wraparound=False
"""Fetched Kafka records as texts, and whether a record is plain: its message is made natively, see _packing.pyx.

Records come as the structs of common/kafka/_fetched.pyx, or as a driver's objects. A record that needs what is rare
takes the reference's way: more than HEADERS_MAX headers, a mark of copies, a name that is not UTF-8, a key that is hashed,
and whatever is refused.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE

from common.kafka._fetched cimport FetchedColumn, FetchedHeader, FetchedRecord, FetchedRecords, next_header
from common.wire._walk cimport valid_utf8

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    KEY_MAX = 4096
    HEX_KEY_MAX = 2048
    BODY_MAX = 16000000
    ID_MAX = 64
    TAG_MAX = 128
    PROPERTIES_BYTES_MAX = 32768
    PREFIX_SIZE = 9

cdef const char *PREFIX = b"penstock-"


cdef class ForeignColumns:
    """The records of one fetch, in either form. Texts of what `fill` fills point into them."""

    def __init__(self, records):
        cdef FetchedColumn column
        self.total = len(records.offsets)
        if is_decoded(records):
            column = records.offsets
            self.decoded, self.start = column.of, column.start
            return
        self.offsets, self.timestamps = list(records.offsets), list(records.timestamps)
        self.keys, self.values, self.headers = list(records.keys), list(records.values), list(records.headers)

    cdef bint fill(self, Plain *plain, Py_ssize_t index, int64_t *offset, int64_t *timestamp) except -1:
        """Fill in a record's texts; False: it takes the reference's way."""
        cdef FetchedRecord *record
        if self.decoded is not None:
            record = &self.decoded.items[self.start + index]
            offset[0], timestamp[0] = record.offset, record.timestamp
            return fill_decoded(plain, record)
        offset[0] = self.offsets[index]
        if not -1 <= self.timestamps[index] <= 0x7FFFFFFFFFFFFFFF:
            return False
        timestamp[0] = self.timestamps[index]
        return fill_objects(plain, self.keys[index], self.values[index], self.headers[index])


cdef bint is_decoded(records) except -1:
    """Whether all columns are those of the same structs, equally long."""
    cdef FetchedColumn first, each
    if type(records.offsets) is not FetchedColumn:
        return False
    first = records.offsets
    for column in (records.timestamps, records.keys, records.values, records.headers):
        if type(column) is not FetchedColumn:
            return False
        each = column
        if each.of is not first.of or each.start != first.start or each.stop != first.stop:
            return False
    return True


cdef bint fill_decoded(Plain *plain, const FetchedRecord *record) noexcept:
    cdef const unsigned char *at = record.headers
    cdef FetchedHeader found
    cdef Header *header
    cdef uint32_t each
    if record.header_count > HEADERS_MAX:
        return False
    plain.has_key, plain.has_value = record.key is not NULL, record.value is not NULL
    plain.key.data, plain.key.size = record.key, record.key_size
    plain.value.data, plain.value.size = record.value, record.value_size
    plain.count = record.header_count
    for each in range(record.header_count):
        at = next_header(at, &found)
        header = &plain.headers[each]
        header.name.data, header.name.size = found.name, found.name_size
        header.value.data, header.value.size = found.value, found.value_size
        header.is_null = found.value is NULL
        if not is_utf8(header.name):
            return False
    return True


cdef bint fill_objects(Plain *plain, key, value, headers) except -1:
    cdef Py_ssize_t size = 0
    cdef Header *header
    if not fill_bytes(key, &plain.key, &plain.has_key) or not fill_bytes(value, &plain.value, &plain.has_value):
        return False
    plain.count = 0
    if not headers:
        return True
    if len(headers) > HEADERS_MAX:
        return False
    for header_name, header_value in headers:
        header = &plain.headers[plain.count]
        if not is_encodable(header_name) or not fill_bytes(header_value, &header.value, &header.is_null):
            return False
        header.is_null = not header.is_null
        header.name.data = <const uint8_t *> PyUnicode_AsUTF8AndSize(header_name, &size)
        header.name.size = size
        plain.count += 1
    return True


cdef bint fill_bytes(data, Text *text, bint *is_there) except -1:
    """Fill in bytes or None; False: it is something else."""
    is_there[0] = data is not None
    text.data, text.size = NULL, 0
    if data is None:
        return True
    if not PyBytes_CheckExact(data):
        return False
    text.data, text.size = <const uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
    return True


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


cdef bint is_plain(Plain *plain) noexcept:
    """Sort the headers, and add up sizes; False: the record takes the reference's way."""
    cdef Py_ssize_t properties_size
    cdef int each
    if plain.value.size > BODY_MAX:
        return False
    plain.property_count = plain.other_count = 0
    plain.tag.data = plain.own_id.data = NULL
    plain.tag.size = plain.own_id.size = plain.others_size = properties_size = 0
    for each in range(plain.count):
        if not sort_header(plain, &plain.headers[each]):
            return False
        if plain.headers[each].is_property:
            properties_size += plain.headers[each].name.size + plain.headers[each].value.size
    plain.is_binary_key = plain.has_key and (plain.key.size > KEY_MAX or not is_utf8(plain.key))
    if plain.is_binary_key:
        if plain.key.size > HEX_KEY_MAX:
            return False
        properties_size += 12 + base64_size(plain.key.size)
    if plain.other_count:
        properties_size += 16 + base64_size(plain.others_size)
    properties_size += 0 if plain.has_value else 18
    plain.size = properties_size + 8 * (plain.count + 4) + plain.value.size + 2 * plain.key.size + plain.tag.size + plain.own_id.size
    return properties_size <= PROPERTIES_BYTES_MAX


cdef bint sort_header(Plain *plain, Header *header) noexcept:
    """Decide what a header becomes; False: the reference decides."""
    cdef Text name = header.name, value = header.value
    header.is_property = header.is_other = False
    if name.size >= PREFIX_SIZE and memcmp(name.data, PREFIX, PREFIX_SIZE) == 0:
        if is_named(name, b"copy", 4):
            return False
        if not header.is_null and not is_repeated(plain, header):
            if is_named(name, b"id", 2) and is_id(value):
                plain.own_id = value
                return True
            if is_named(name, b"tag", 3) and is_tag(value):
                plain.tag = value
                return True
        header.is_other = True
    else:
        header.is_other = header.is_null or is_repeated(plain, header) or not is_utf8(value)
    if header.is_other:
        plain.other_count += 1
        plain.others_size += 8 + name.size + value.size
    else:
        header.is_property = True
        plain.property_count += 1
    return True


cdef inline bint is_named(Text name, const char *end, Py_ssize_t size) noexcept:
    """Whether a name with our prefix has this end."""
    return name.size == PREFIX_SIZE + size and memcmp(name.data + PREFIX_SIZE, end, size) == 0


cdef inline bint is_id(Text value) noexcept:
    """In UTF-8, of 1 to ID_MAX characters."""
    cdef Py_ssize_t at, characters = 0
    if not 1 <= value.size <= 4 * ID_MAX or not is_utf8(value):
        return False
    for at in range(value.size):
        characters += value.data[at] & 0xC0 != 0x80
    return characters <= ID_MAX


cdef inline bint is_tag(Text value) noexcept:
    """In UTF-8, of 1 to TAG_MAX bytes without blanks and control characters."""
    cdef Py_ssize_t at
    if not 1 <= value.size <= TAG_MAX or not is_utf8(value):
        return False
    for at in range(value.size):
        if value.data[at] <= 0x20 or value.data[at] == 0x7f:
            return False
    return True


cdef bint is_repeated(const Plain *plain, const Header *header) noexcept:
    cdef int each
    cdef const Header *other
    for each in range(plain.count):
        other = &plain.headers[each]
        if other != header and other.name.size == header.name.size \
                and memcmp(other.name.data, header.name.data, header.name.size) == 0:
            return True
    return False


cdef inline bint is_ascii(Text text) noexcept:
    cdef Py_ssize_t at
    for at in range(text.size):
        if text.data[at] >= 0x80:
            return False
    return True


cdef inline bint is_utf8(Text text) noexcept:
    return is_ascii(text) or valid_utf8(text.data, text.size)
