# cython: language_level=3, boundscheck=False, wraparound=False
"""Decoded Kafka records as structs whose texts point into the fetched bytes, and columns over them.

A column makes an object where somebody asks for one.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, realloc

cdef enum:
    ITEMS_MIN = 256

cdef enum ColumnKind:
    OFFSETS, TIMESTAMPS, KEYS, VALUES, HEADERS


cdef class FetchedRecords:
    """Records of consecutive batches, as structs."""

    def __cinit__(self):
        self.kept = []

    def __dealloc__(self):
        free(self.items)

    cdef int make_room(self) except -1:
        """Room for one more."""
        cdef Py_ssize_t wanted
        cdef FetchedRecord* grown
        if self.count < self.room:
            return 0
        wanted = max(2 * self.room, <Py_ssize_t>ITEMS_MIN)
        grown = <FetchedRecord*>realloc(self.items, wanted * sizeof(FetchedRecord))
        if grown == NULL:
            raise MemoryError()
        self.items, self.room = grown, wanted
        return 0


cdef class FetchedColumn:
    """A column, as a sequence."""

    def __len__(self):
        return self.stop - self.start

    def __getitem__(self, index):
        cdef Py_ssize_t at
        if isinstance(index, slice):
            start, stop, step = index.indices(self.stop - self.start)
            if step != 1:
                return list(self)[index]
            return column(self.of, self.kind, self.start + start, self.start + max(start, stop))
        at = index
        if at < 0:
            at += self.stop - self.start
        if not 0 <= at < self.stop - self.start:
            raise IndexError(index)
        return value_of(&self.of.items[self.start + at], self.kind)

    def __iter__(self):
        cdef Py_ssize_t at
        return iter([value_of(&self.of.items[at], self.kind) for at in range(self.start, self.stop)])

    def index(self, value, *bounds):
        return list(self).index(value, *bounds)

    def count(self, value):
        return list(self).count(value)


cdef FetchedColumn column(FetchedRecords of, int kind, Py_ssize_t start, Py_ssize_t stop):
    cdef FetchedColumn made = FetchedColumn.__new__(FetchedColumn)
    made.of, made.kind, made.start, made.stop = of, kind, start, stop
    return made


cdef object value_of(const FetchedRecord* record, int kind):
    if kind == OFFSETS:
        return record.offset
    if kind == TIMESTAMPS:
        return record.timestamp
    if kind == KEYS:
        return bytes_or_none(record.key, record.key_size)
    if kind == VALUES:
        return bytes_or_none(record.value, record.value_size)
    return headers_of(record)


cdef object bytes_or_none(const unsigned char* data, uint32_t size):
    return None if data == NULL else PyBytes_FromStringAndSize(<const char*>data, size)


cdef object headers_of(const FetchedRecord* record):
    cdef const unsigned char* at = record.headers
    cdef FetchedHeader header
    cdef uint32_t each
    if not record.header_count:
        return ()
    found = []
    for each in range(record.header_count):
        at = next_header(at, &header)
        name = PyUnicode_DecodeUTF8(<const char*>header.name, header.name_size, "surrogateescape")
        found.append((name, bytes_or_none(header.value, header.value_size)))
    return found


cdef const unsigned char* next_header(const unsigned char* at, FetchedHeader* header) noexcept nogil:
    """Read a header that was walked before; returns its end."""
    cdef int64_t size = 0
    at = varint(at, at + 10, &size)   # a walked number ends within its 10 bytes
    header.name, header.name_size = at, <uint32_t>size
    at += size
    at = varint(at, at + 10, &size)
    header.value, header.value_size = NULL, 0
    if size >= 0:
        header.value, header.value_size = at, <uint32_t>size
        at += size
    return at


cdef tuple columns_of(FetchedRecords of):
    """All columns, in the order of decoding.FetchedColumns."""
    return tuple([column(of, kind, 0, of.count) for kind in range(HEADERS + 1)])
