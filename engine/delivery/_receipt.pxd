# cython: language_level=3
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from common._blake2b cimport penstock_blake2b, penstock_blake2b_finish, penstock_blake2b_start, penstock_blake2b_update

cdef enum:
    MAC_SIZE = 16


cdef packed struct TokenBytes:
    uint8_t version
    uint8_t zero
    unsigned short queue
    uint32_t count
    uint64_t topic_hash
    uint64_t base_offset
    uint64_t lease
    uint8_t mac[16]


cdef class Receipts:
    cdef penstock_blake2b keyed
    cdef void write(self, TokenBytes* token, uint32_t queue, uint32_t count, uint64_t topic_hash, uint64_t base_offset,
                    uint64_t lease) noexcept
    cdef bint is_ours(self, const TokenBytes* token) noexcept
