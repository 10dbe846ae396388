# cython: language_level=3
"""Blocks of the journal's entries, as buffer/blocks.py and buffer/entry.py have them: what encoders of intents share."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from "crc32c.h" nogil:
    uint32_t crc32c_extend(uint32_t crc, const void* data, size_t size)

cdef enum:
    BLOCK_HEAD = 16
    BLOCK_MAGIC = 0x4642
    ENTRY = 1
    ENTRY_HEAD = 16
    VERSION = 1


cdef inline uint64_t padded(uint64_t size) noexcept:
    return (size + 7) & ~<uint64_t>7


cdef inline unsigned char* begin_block(unsigned char* out, uint32_t size, int64_t accepted_at_ms, bytes name,
                                       const unsigned char* key, uint32_t key_size) noexcept:
    """Write a block's head, the entry's head, name and key; returns where the record's flags, id and message belong.

    `size` is the block's without padding; `key` NULL: the message has none. The caller has room for `padded(size)` bytes.
    """
    cdef uint16_t magic = BLOCK_MAGIC, name_size = <uint16_t>len(name)
    cdef unsigned char* at = out + BLOCK_HEAD
    memset(out, 0, BLOCK_HEAD)
    memcpy(out + 4, &size, 4)
    memcpy(out + 8, &magic, 2)
    out[10] = ENTRY
    at[0], at[1] = VERSION, key != NULL
    memcpy(at + 2, &name_size, 2)
    memcpy(at + 4, &key_size, 4)
    memcpy(at + 8, &accepted_at_ms, 8)
    at += ENTRY_HEAD
    memcpy(at, PyBytes_AS_STRING(name), name_size)
    at += name_size
    if key_size:
        memcpy(at, key, key_size)
    return at + key_size


cdef inline unsigned char* end_block(unsigned char* out, uint64_t position, uint32_t size) noexcept:
    """Write the checksum, which covers the position, and the padding of a block that is whole else; returns its end."""
    cdef uint32_t checksum = crc32c_extend(crc32c_extend(0, &position, 8), out + 4, size - 4)
    memcpy(out, &checksum, 4)
    memset(out + size, 0, padded(size) - size)
    return out + padded(size)
