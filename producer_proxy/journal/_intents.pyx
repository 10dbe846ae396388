# cython: language_level=3, boundscheck=False, wraparound=False
"""Encoding of the intents of one batch in one call. The reference is intents.py."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from "crc32c.h" nogil:
    uint32_t crc32c_extend(uint32_t crc, const void* data, size_t size)
    void crc32c_setup(int allow_instruction)

cdef enum:
    BLOCK_HEAD = 16
    BLOCK_MAGIC = 0x4642
    ENTRY = 1
    ENTRY_HEAD = 16
    VERSION = 1
    ID_SIZE = 16

crc32c_setup(1)


def intents_of(uint64_t position, int64_t accepted_at_ms, messages):
    """See intents.intents_of."""
    cdef list parts = [], positions = []
    cdef uint64_t size = 0
    cdef bytes made
    cdef unsigned char* out
    for destination, key, assigned_id, encoded in messages:
        name = (<str>destination.name).encode("ascii")
        bound = key if isinstance(key, bytes) else None
        parts.append((name, bound, assigned_id, encoded))
        size += padded(block_size(name, bound, assigned_id, encoded))
    made = PyBytes_FromStringAndSize(NULL, size)
    out = <unsigned char*>PyBytes_AS_STRING(made)
    for name, bound, assigned_id, encoded in parts:
        positions.append(position)
        # Bounds: `made` has the padded sizes of all blocks, and each call writes exactly its own.
        size = write_block(out, position, accepted_at_ms, name, bound, assigned_id, encoded)
        out += size
        position += size
    return made, positions


cdef inline uint64_t padded(uint64_t size) noexcept:
    return (size + 7) & ~<uint64_t>7


cdef inline uint64_t block_size(bytes name, bytes key, bytes assigned_id, bytes encoded) except 0:
    cdef uint64_t size = BLOCK_HEAD + ENTRY_HEAD + <uint64_t>len(name) + 1 + <uint64_t>len(encoded)
    if key is not None:
        size += <uint64_t>len(key)
    if assigned_id is not None:
        if len(assigned_id) != ID_SIZE:
            raise ValueError(f"an id of {len(assigned_id)} bytes")
        size += ID_SIZE
    return size


cdef uint64_t write_block(unsigned char* out, uint64_t position, int64_t accepted_at_ms, bytes name, bytes key,
                          bytes assigned_id, bytes encoded) except 0:
    """Write one block with its padding at `out`; returns its padded size."""
    cdef uint64_t size = block_size(name, key, assigned_id, encoded), whole = padded(size)
    cdef uint32_t size32 = <uint32_t>size, checksum
    cdef uint16_t magic = BLOCK_MAGIC, name_size = <uint16_t>len(name)
    cdef uint32_t key_size = 0 if key is None else <uint32_t>len(key)
    cdef unsigned char* at = out + BLOCK_HEAD
    memset(out, 0, BLOCK_HEAD)
    memcpy(out + 4, &size32, 4)
    memcpy(out + 8, &magic, 2)
    out[10] = ENTRY
    at[0], at[1] = VERSION, key is not None
    memcpy(at + 2, &name_size, 2)
    memcpy(at + 4, &key_size, 4)
    memcpy(at + 8, &accepted_at_ms, 8)
    at += ENTRY_HEAD
    memcpy(at, PyBytes_AS_STRING(name), name_size)
    at += name_size
    if key is not None:
        memcpy(at, PyBytes_AS_STRING(key), key_size)
        at += key_size
    at[0] = assigned_id is not None
    at += 1
    if assigned_id is not None:
        memcpy(at, PyBytes_AS_STRING(assigned_id), ID_SIZE)
        at += ID_SIZE
    memcpy(at, PyBytes_AS_STRING(encoded), len(encoded))
    checksum = crc32c_extend(crc32c_extend(0, &position, 8), out + 4, size - 4)
    memcpy(out, &checksum, 4)
    memset(out + size, 0, whole - size)
    return whole
