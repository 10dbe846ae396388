# cython: language_level=3
"""Ids of messages, and the window of ids that sends are checked against. Reference with explanations: ids.py."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from common.wire._cursor cimport Cursor, T_STRING, read_field, read_string, skip_value


cdef extern from "siphash.h" nogil:
    void siphash128(uint64_t k0, uint64_t k1, const unsigned char* data, size_t size, uint64_t* low, uint64_t* high)


cdef packed struct IdEntry:
    uint64_t low
    uint64_t high
    uint64_t offset
    uint32_t queue
    uint32_t expires_s           # Unix time; 0 is a free slot


cdef struct IdTable:
    uint64_t* filter             # a Bloom filter, one word per four slots: nearly all unsuccessful look-ups end at it
    IdEntry* slots
    size_t mask
    size_t count
    uint64_t number              # counts up over the life of the window
    uint32_t expires_s           # of the entry that lives longest


cdef struct Hash:
    uint64_t low
    uint64_t high


cdef struct Names:
    const uint8_t* id            # NULL when the client set none
    const uint8_t* key
    uint32_t id_size
    uint32_t key_size


cdef inline bint find_names(const uint8_t* message, uint32_t size, Names* names) noexcept nogil:
    """Id and key of a message in Thrift binary; False when the bytes are none.

    Of a repeated field the last one counts.
    """
    cdef Cursor c
    cdef int type, field_id
    cdef uint32_t start, length
    names.id = names.key = NULL
    c.p, c.n, c.at, c.fault, c.elements = message, size, 0, 0, 0
    while True:
        type = read_field(&c, &field_id)
        if type <= 0:
            return type == 0
        if type == T_STRING and (field_id == 6 or field_id == 3):
            if not read_string(&c, &start, &length):
                return False
            if field_id == 6:
                names.id, names.id_size = message + start, length
            else:
                names.key, names.key_size = message + start, length
        elif not skip_value(&c, type, 1):
            return False


cdef class IdWindow:
    cdef uint64_t k0, k1
    cdef IdTable* tables         # oldest first
    cdef int table_count, table_room
    cdef uint64_t* undo          # (table number, slot) of the ids added since the last commit()
    cdef size_t undo_count, undo_room
    cdef size_t slots_max, slots_used, entries, expected
    cdef uint64_t tables_made
    cdef readonly uint64_t hits, forgotten
    cdef readonly size_t capacity

    cdef bint hash_record(self, uint32_t topic_id, const uint8_t* record, Hash* hash) noexcept nogil
    cdef IdEntry* find(self, const Hash* hash, uint32_t now_s) noexcept nogil
    cdef int add(self, const Hash* hash, uint64_t offset, uint32_t queue, uint32_t expires_s, uint32_t now_s) except -1
    cdef void commit(self) noexcept
    cdef void take_back(self) noexcept
    cdef int add_table(self, uint32_t now_s) except -1
    cdef void drop_oldest(self, uint32_t now_s) noexcept


cdef inline uint32_t expiry_s(int64_t stored_at_ms, uint32_t window_ms) noexcept nogil:
    """Unix second from which on the id is forgotten; never 0."""
    cdef int64_t at = (stored_at_ms + window_ms + 999) // 1000
    return <uint32_t>0xFFFFFFFF if at >> 32 > 0 else <uint32_t>at if at > 0 else 1
