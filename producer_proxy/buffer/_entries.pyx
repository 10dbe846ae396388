# cython: language_level=3, boundscheck=False, wraparound=False
"""Decoding of many buffered entries in one call, for the drain. The reference is entries.py."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from producer_proxy.buffer.entry import BufferEntry

cdef extern from "crc32c.h" nogil:
    uint32_t crc32c_extend(uint32_t crc, const void* data, size_t size)
    void crc32c_setup()

cdef enum:
    BLOCK_HEAD = 16
    BLOCK_MAGIC = 0x4642
    BLOCK_BYTES_MAX = 32 << 20
    ENTRY_HEAD = 16
    VERSION = 1
    HAS_KEY = 1
    HAS_ASSIGNED_ID = 1
    ID_SIZE = 16
    VALUE_HEAD = 7

crc32c_setup()


def entries_at(bytes data, uint64_t start, list positions, int64_t bytes_max):
    """See entries.entries_at."""
    cdef const unsigned char* raw = <const unsigned char*>PyBytes_AS_STRING(data)
    cdef const unsigned char* block
    cdef uint64_t size = len(data), position, at
    cdef uint32_t checksum, block_size
    cdef uint16_t magic
    cdef int64_t used = 0
    cdef list found = []
    for position in positions:
        at = position - start
        # Bounds: unsigned, so a position before `start` wraps to a huge `at`. Both conditions together keep the head
        # within `data`.
        if position < start or at + BLOCK_HEAD > size:
            break
        block = raw + at
        memcpy(&checksum, block, 4)
        memcpy(&block_size, block + 4, 4)
        memcpy(&magic, block + 8, 2)
        if magic != BLOCK_MAGIC or not BLOCK_HEAD <= block_size <= BLOCK_BYTES_MAX or at + block_size > size:
            break
        if found and used + block_size - BLOCK_HEAD > bytes_max:
            break
        if crc32c_extend(crc32c_extend(0, &position, 8), block + 4, block_size - 4) != checksum:
            break
        entry = entry_of(block + BLOCK_HEAD, block_size - BLOCK_HEAD)
        if entry is None:
            break
        found.append(entry)
        used += block_size - BLOCK_HEAD
    return found, used


def entries_of(list values):
    """See entries.entries_of."""
    cdef const unsigned char* raw
    cdef uint32_t checksum
    cdef Py_ssize_t size
    cdef bytes value
    cdef list found = []
    for value in values:
        raw, size = <const unsigned char*>PyBytes_AS_STRING(value), len(value)
        entry = None
        if size >= VALUE_HEAD and raw[0] == c"P" and raw[1] == c"B" and raw[2] == c"1":
            memcpy(&checksum, raw + 3, 4)
            if crc32c_extend(0, raw + VALUE_HEAD, size - VALUE_HEAD) == checksum:
                entry = entry_of(raw + VALUE_HEAD, size - VALUE_HEAD)
        found.append(entry)
    return found


def marks_of(uint64_t base, list offsets):
    """See entries.marks_of."""
    cdef bytes made = PyBytes_FromStringAndSize(NULL, 8 * len(offsets))
    cdef unsigned char* out = <unsigned char*>PyBytes_AS_STRING(made)
    cdef uint32_t offset, checksum
    cdef uint64_t position
    for offset in offsets:
        position = base + offset
        checksum = crc32c_extend(0, &position, 8)
        memcpy(out, &offset, 4)
        memcpy(out + 4, &checksum, 4)
        out += 8
    return made


cdef object entry_of(const unsigned char* raw, uint64_t size):
    """As entry.decode of raw[0..size); None where that raises.

    Bounds: each size is checked against `size` before the bytes after it are read.
    """
    cdef uint16_t topic_size
    cdef uint32_t key_size
    cdef int64_t accepted_at_ms
    cdef uint64_t record_at, message_at
    if size < ENTRY_HEAD + 1 or raw[0] != VERSION:
        return None
    memcpy(&topic_size, raw + 2, 2)
    memcpy(&key_size, raw + 4, 4)
    memcpy(&accepted_at_ms, raw + 8, 8)
    record_at = ENTRY_HEAD + topic_size + <uint64_t>key_size
    if record_at + 1 > size or topic_size == 0:
        return None
    message_at = record_at + 1 + (ID_SIZE if raw[record_at] & HAS_ASSIGNED_ID else 0)
    if message_at > size:
        return None
    try:
        topic = raw[ENTRY_HEAD : ENTRY_HEAD + topic_size].decode("ascii")
    except UnicodeDecodeError:
        return None
    return tuple.__new__(BufferEntry, (
        topic,
        raw[record_at - key_size : record_at] if raw[1] & HAS_KEY else None,
        raw[record_at + 1 : message_at] if message_at > record_at + 1 else None,
        raw[message_at : size],
        accepted_at_ms,
    ))
