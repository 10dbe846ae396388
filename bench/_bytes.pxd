"""Bytes for the native generator: a growable buffer to write, a bounded cursor to read. Thrift is big-endian."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

cdef extern from "endian.h" nogil:
    uint16_t htobe16(uint16_t)
    uint32_t htobe32(uint32_t)
    uint32_t be32toh(uint32_t)
    uint64_t htobe64(uint64_t)
    uint64_t be64toh(uint64_t)

cdef struct Buffer:
    uint8_t* data
    size_t size
    size_t capacity

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end


cdef inline int reserve(Buffer* buffer, size_t more) noexcept nogil:
    """Make room for `more` bytes after the written ones. -1 when out of memory; then nothing has changed."""
    cdef size_t wanted = buffer.size + more
    cdef void* grown
    if wanted <= buffer.capacity:
        return 0
    wanted = wanted + wanted // 2 + 64
    grown = realloc(buffer.data, wanted)
    if grown == NULL:
        return -1
    buffer.data = <uint8_t*>grown
    buffer.capacity = wanted
    return 0


# Bounds: the writers below do not check. The caller has reserved enough for all that it writes.

cdef inline void put(Buffer* buffer, const void* data, size_t size) noexcept nogil:
    memcpy(buffer.data + buffer.size, data, size)
    buffer.size += size


cdef inline void put_u8(Buffer* buffer, uint8_t value) noexcept nogil:
    buffer.data[buffer.size] = value
    buffer.size += 1


cdef inline void put_u32(Buffer* buffer, uint32_t value) noexcept nogil:
    value = htobe32(value)
    put(buffer, &value, 4)


cdef inline void put_field(Buffer* buffer, uint8_t kind, uint16_t field_id) noexcept nogil:
    field_id = htobe16(field_id)
    put_u8(buffer, kind)
    put(buffer, &field_id, 2)


cdef inline void patch_u32(Buffer* buffer, size_t at, uint32_t value) noexcept nogil:
    value = htobe32(value)
    memcpy(buffer.data + at, &value, 4)


cdef inline size_t left(Cursor* cursor) noexcept nogil:
    return <size_t>(cursor.end - cursor.at)


cdef inline uint32_t peek_u32(const uint8_t* at) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, at, 4)
    return be32toh(value)


cdef inline int take_u32(Cursor* cursor, uint32_t* value) noexcept nogil:
    if left(cursor) < 4:
        return -1
    value[0] = peek_u32(cursor.at)
    cursor.at += 4
    return 0


cdef inline int take_bytes(Cursor* cursor, const uint8_t** data, uint32_t* size) noexcept nogil:
    """A string or binary as a slice of the frame, not a copy."""
    if take_u32(cursor, size) < 0 or left(cursor) < size[0]:
        return -1
    data[0] = cursor.at
    cursor.at += size[0]
    return 0


cdef inline int take_field(Cursor* cursor, uint8_t* kind, uint16_t* field_id) noexcept nogil:
    """The next field's type and id; type 0 is the end of the struct and has no id."""
    if left(cursor) < 1:
        return -1
    kind[0] = cursor.at[0]
    if kind[0] == 0:
        cursor.at += 1
        return 0
    if left(cursor) < 3:
        return -1
    field_id[0] = <uint16_t>((cursor.at[1] << 8) | cursor.at[2])
    cursor.at += 3
    return 0
