# Big-endian numbers in raw memory; the caller has checked the bounds.

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef inline uint32_t big32(const uint8_t *data) noexcept:
    return <uint32_t> data[0] << 24 | <uint32_t> data[1] << 16 | <uint32_t> data[2] << 8 | data[3]


cdef inline void put32(uint8_t *data, uint32_t number) noexcept:
    data[0], data[1] = <uint8_t> (number >> 24), <uint8_t> (number >> 16)
    data[2], data[3] = <uint8_t> (number >> 8), <uint8_t> number


cdef inline void put64(uint8_t *data, uint64_t number) noexcept:
    put32(data, <uint32_t> (number >> 32))
    put32(data + 4, <uint32_t> number)


cdef inline uint64_t big64(const uint8_t *data) noexcept:
    return <uint64_t> big32(data) << 32 | big32(data + 4)
