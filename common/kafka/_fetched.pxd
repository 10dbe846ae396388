# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef struct FetchedRecord:
    int64_t offset
    int64_t timestamp
    const unsigned char* key          # NULL: null
    const unsigned char* value        # NULL: null
    const unsigned char* headers      # the first one
    uint32_t key_size
    uint32_t value_size
    uint32_t header_count
    uint32_t headers_size             # of all of them


cdef class FetchedRecords:
    # Invariants: items[0..count) are filled; what they point to lies within the bytes in `kept`; the headers of each
    # were walked once, so next_header() finds `header_count` of them within `headers_size` bytes.
    cdef list kept
    cdef FetchedRecord* items
    cdef Py_ssize_t count, room
    cdef int make_room(self) except -1


cdef class FetchedColumn:
    # One attribute of items[start..stop) of `of`: 0 <= start <= stop <= of.count.
    cdef readonly FetchedRecords of
    cdef readonly Py_ssize_t start, stop
    cdef int kind


cdef struct FetchedHeader:
    const unsigned char* name
    const unsigned char* value        # NULL: null
    uint32_t name_size
    uint32_t value_size


cdef const unsigned char* next_header(const unsigned char* at, FetchedHeader* header) noexcept nogil


cdef tuple columns_of(FetchedRecords of)


cdef inline const unsigned char* varint(const unsigned char* at, const unsigned char* end, int64_t* number) noexcept nogil:
    """Read a zigzag number; returns its end, or NULL where it is cut off or longer than 10 bytes."""
    cdef uint64_t found = 0
    cdef int shift = 0
    cdef unsigned char byte
    while at < end and shift <= 63:
        byte = at[0]
        at += 1
        found |= (<uint64_t>(byte & 0x7F)) << shift
        if byte < 0x80:
            number[0] = <int64_t>(found >> 1) ^ -<int64_t>(found & 1)
            return at
        shift += 7
    return NULL
