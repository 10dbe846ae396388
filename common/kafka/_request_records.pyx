# cython: language_level=3, boundscheck=False, wraparound=False
"""Records to produce whose fields lie in the bytes of a request: no object per record.

They have the columns of OutgoingRecords for clients that need those, which are made when they are asked for.

Bounds: `add` and `add_header` write within `room` and `header_room`; what a Text points to is kept by `kept`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdlib cimport calloc, free, realloc

from common.kafka.records import OutgoingRecords

cdef enum:
    HEADERS_MIN = 64


cdef class RequestRecords:
    """
    Args:
        names: of the topics that records may have.
        kept: the bytes in which the records' fields lie.
        room: for so many records.
        timestamp: of all records, in ms since 1970.
    """

    def __cinit__(self, list names, bytes kept, uint32_t room, int64_t timestamp):
        self.names, self.kept, self.room, self.timestamp = names, [kept], room, timestamp
        self.header_room = 2 * room + HEADERS_MIN
        self.rows = <RequestRecord*>calloc(<size_t>room + 1, sizeof(RequestRecord))
        self.row_headers = <RequestHeader*>calloc(self.header_room, sizeof(RequestHeader))
        if self.rows == NULL or self.row_headers == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.rows)
        free(self.row_headers)

    cdef int add(self, uint32_t topic, int32_t partition, Text key, Text value) except -1:
        """Add a record; its headers follow by `add_header`."""
        cdef RequestRecord* row
        if self.count == self.room:
            raise ValueError(f"more than {self.room} records")
        row = &self.rows[self.count]
        row.topic, row.partition, row.key, row.value = topic, partition, key, value
        row.first_header, row.header_count = self.header_count, 0
        self.payload_bytes += key.size + value.size
        self.count += 1
        return 0

    cdef int add_header(self, Text name, Text value) except -1:
        """Add a header to the last record."""
        cdef RequestHeader* grown
        if self.header_count == self.header_room:
            grown = <RequestHeader*>realloc(self.row_headers, 2 * <size_t>self.header_room * sizeof(RequestHeader))
            if grown == NULL:
                raise MemoryError()
            self.row_headers, self.header_room = grown, 2 * self.header_room
        self.row_headers[self.header_count].name, self.row_headers[self.header_count].value = name, value
        self.payload_bytes += value.size
        self.header_count += 1
        self.rows[self.count - 1].header_count += 1
        return 0

    cdef Text text_of(self, data):
        """The bytes of an object, which is kept; null for None."""
        cdef Text found
        found.data, found.size = NULL, 0
        if data is not None:
            self.kept.append(data)
            found.data, found.size = <const unsigned char*>PyBytes_AS_STRING(<bytes?>data), PyBytes_GET_SIZE(data)
        return found

    @property
    def topics(self):
        cdef uint32_t each
        return [self.names[self.rows[each].topic] for each in range(self.count)]

    @property
    def partitions(self):
        cdef uint32_t each
        return [self.rows[each].partition for each in range(self.count)]

    @property
    def timestamps(self):
        return [self.timestamp] * self.count

    @property
    def keys(self):
        cdef uint32_t each
        return [bytes_of(self.rows[each].key) for each in range(self.count)]

    @property
    def values(self):
        cdef uint32_t each
        return [bytes_of(self.rows[each].value) for each in range(self.count)]

    @property
    def headers(self):
        cdef uint32_t each
        return [self.headers_of(&self.rows[each]) for each in range(self.count)]

    cdef list headers_of(self, RequestRecord* row):
        cdef uint32_t each
        cdef RequestHeader* header
        cdef list found = []
        for each in range(row.header_count):
            header = &self.row_headers[row.first_header + each]
            name = PyUnicode_DecodeUTF8(<const char*>header.name.data, header.name.size, NULL)
            found.append((name, bytes_of(header.value)))
        return found

    def columns(self):
        """The records as columns of objects."""
        return OutgoingRecords(self.topics, self.partitions, self.timestamps, self.keys, self.values, self.headers)

    def __iter__(self):
        return iter(self.columns())


cdef inline object bytes_of(Text text):
    return None if text.data == NULL else PyBytes_FromStringAndSize(<const char*>text.data, text.size)
