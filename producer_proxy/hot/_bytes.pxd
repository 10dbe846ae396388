# cython: language_level=3
"""Big-endian numbers of the contract's replies, inlined where they are used."""

from libc.stdint cimport uint32_t, uint64_t


cdef inline void put_be32(unsigned char* p, uint32_t value) noexcept nogil:
    p[0], p[1], p[2], p[3] = (value >> 24) & 255, (value >> 16) & 255, (value >> 8) & 255, value & 255


cdef inline void put_be64(unsigned char* p, uint64_t value) noexcept nogil:
    put_be32(p, <uint32_t>(value >> 32))
    put_be32(p + 4, <uint32_t>value)
