# cython: language_level=3
"""Byte buffer of a connection, in C.

Invariant: `data` has `cap` bytes; the content is data[start .. end], and start <= end <= cap. All reads and writes of
`data` rely on it.
"""
from libc.stdlib cimport free, realloc
from libc.string cimport memmove


cdef struct Buffer:
    unsigned char* data
    size_t cap
    size_t start
    size_t end


cdef inline size_t held(const Buffer* buffer) noexcept nogil:
    """Number of bytes in the buffer."""
    return buffer.end - buffer.start


cdef inline void move_to_front(Buffer* buffer) noexcept nogil:
    cdef size_t size = held(buffer)
    if buffer.start > 0:
        memmove(buffer.data, buffer.data + buffer.start, size)
        buffer.start, buffer.end = 0, size


cdef inline bint grow(Buffer* buffer, size_t cap) noexcept nogil:
    """Enlarge to `cap` bytes; False without memory, and then nothing has changed."""
    cdef unsigned char* grown = <unsigned char*>realloc(buffer.data, cap)
    if grown == NULL:
        return False
    buffer.data, buffer.cap = grown, cap
    return True


cdef inline void release(Buffer* buffer) noexcept nogil:
    free(buffer.data)
    buffer.data = NULL
    buffer.cap = buffer.start = buffer.end = 0
