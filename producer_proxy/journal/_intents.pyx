# cython: language_level=3, boundscheck=False, wraparound=False
"""Encoding of the intents of one batch in one call. The reference is intents.py."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from producer_proxy.journal._block cimport BLOCK_HEAD, ENTRY_HEAD, begin_block, end_block, padded

cdef extern from "crc32c.h" nogil:
    void crc32c_setup()

cdef enum:
    ID_SIZE = 16

crc32c_setup()


def intents_of(uint64_t position, int64_t accepted_at_ms, messages):
    """See intents.intents_of."""
    cdef list parts = [], positions = []
    cdef uint64_t size = 0
    cdef bytes made
    cdef unsigned char* out
    cdef unsigned char* end
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
        end = write_block(out, position, accepted_at_ms, name, bound, assigned_id, encoded)
        position += <uint64_t>(end - out)
        out = end
    return made, positions


cdef inline uint64_t block_size(bytes name, bytes key, bytes assigned_id, bytes encoded) except 0:
    cdef uint64_t size = BLOCK_HEAD + ENTRY_HEAD + <uint64_t>len(name) + 1 + <uint64_t>len(encoded)
    if key is not None:
        size += <uint64_t>len(key)
    if assigned_id is not None:
        if len(assigned_id) != ID_SIZE:
            raise ValueError(f"an id of {len(assigned_id)} bytes")
        size += ID_SIZE
    return size


cdef unsigned char* write_block(unsigned char* out, uint64_t position, int64_t accepted_at_ms, bytes name, bytes key,
                                bytes assigned_id, bytes encoded) except NULL:
    """Write one block with its padding at `out`; returns its end."""
    cdef uint32_t size = <uint32_t>block_size(name, key, assigned_id, encoded)
    cdef const unsigned char* key_start = NULL
    cdef uint32_t key_size = 0
    cdef unsigned char* at
    if key is not None:
        key_start, key_size = <const unsigned char*>PyBytes_AS_STRING(key), <uint32_t>len(key)
    at = begin_block(out, size, accepted_at_ms, name, key_start, key_size)
    at[0] = assigned_id is not None
    at += 1
    if assigned_id is not None:
        memcpy(at, PyBytes_AS_STRING(assigned_id), ID_SIZE)
        at += ID_SIZE
    memcpy(at, PyBytes_AS_STRING(encoded), len(encoded))
    return end_block(out, position, size)
