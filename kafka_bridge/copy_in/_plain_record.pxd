# cython: language_level=3
from libc.stdint cimport int64_t, uint8_t

from common.kafka._fetched cimport FetchedRecords

cdef enum:
    HEADERS_MAX = 16


cdef struct Text:
    const uint8_t *data
    Py_ssize_t size


cdef struct Header:
    Text name, value
    bint is_null, is_property, is_other


cdef struct Plain:
    Text key, value, tag, own_id
    Header headers[HEADERS_MAX]
    int count, property_count, other_count
    bint has_key, has_value, is_binary_key
    Py_ssize_t others_size            # of all other headers, before base64
    Py_ssize_t size                   # of all texts as they are written


cdef class ForeignColumns:
    # Invariant: with `decoded`, items[start..start + total) of it are filled; without it the lists have `total` entries.
    cdef Py_ssize_t total, start
    cdef FetchedRecords decoded       # None: objects
    cdef list offsets, timestamps, keys, values, headers
    cdef bint fill(self, Plain *plain, Py_ssize_t index, int64_t *offset, int64_t *timestamp) except -1


cdef bint is_plain(Plain *plain) noexcept


cdef inline Py_ssize_t base64_size(Py_ssize_t size) noexcept:
    return (size + 2) // 3 * 4
