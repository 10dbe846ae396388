# cython: language_level=3
"""Numbers at any address: a cast pointer would load them misaligned, which not every processor allows."""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy


cdef inline uint32_t load32(const void* at) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, at, sizeof(value))
    return value


cdef inline uint64_t load64(const void* at) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, at, sizeof(value))
    return value


cdef inline void store32(void* at, uint32_t value) noexcept nogil:
    memcpy(at, &value, sizeof(value))
