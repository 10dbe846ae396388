"""Records to produce whose fields lie in the bytes of a request; see _request_records.pyx."""

from libc.stdint cimport int32_t, int64_t, uint32_t


cdef struct Text:
    const unsigned char* data         # NULL: Kafka's null, which differs from empty
    Py_ssize_t size

cdef struct RequestHeader:
    Text name                         # UTF-8
    Text value

cdef struct RequestRecord:
    uint32_t topic                    # its place in `names`
    int32_t partition
    Text key
    Text value
    uint32_t first_header, header_count


cdef class RequestRecords:
    cdef readonly list names
    cdef readonly Py_ssize_t payload_bytes
    cdef RequestRecord* rows
    cdef RequestHeader* row_headers
    cdef uint32_t count, room, header_count, header_room
    cdef int64_t timestamp
    cdef list kept

    cdef int add(self, uint32_t topic, int32_t partition, Text key, Text value) except -1
    cdef int add_header(self, Text name, Text value) except -1
    cdef Text text_of(self, data)
    cdef list headers_of(self, RequestRecord* row)
