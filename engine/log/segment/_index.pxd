# cython: language_level=3
"""The index of a segment (a hash while it is active, a sorted file once it is sealed), and the batch header for native
code."""
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "crc32c.h" nogil:
    uint32_t crc32c_extend(uint32_t crc, const void* data, size_t size)
    void crc32c_choose(int best)
    int crc32c_mode


cdef packed struct BatchHeader:
    uint32_t crc
    uint32_t size
    uint16_t magic
    uint8_t kind
    uint8_t flags
    uint32_t epoch
    uint32_t topic_id
    uint32_t queue
    uint32_t count
    uint32_t reserved
    uint64_t base_offset
    int64_t stored_at_ms


cdef packed struct IndexEntry:
    uint64_t base_offset
    uint32_t at                  # of the batch in the segment's file
    uint32_t size
    uint32_t count
    uint32_t stored_delta_ms     # after the segment's creation, limited to 32 bits


cdef packed struct DirectoryEntry:
    uint32_t topic_id
    uint32_t queue
    uint32_t first_entry
    uint32_t entry_count
    uint64_t next_offset


cdef struct QueueSlot:
    uint64_t key                 # topic id << 32 | queue; 0 is free, since topic 0 has no queue 0
    uint64_t next_offset
    IndexEntry* entries
    uint32_t count
    uint32_t capacity


cdef inline uint64_t key_of(uint32_t topic_id, uint32_t queue) noexcept nogil:
    return (<uint64_t>topic_id << 32) | queue


cdef inline uint64_t hash_of(uint64_t key) noexcept nogil:
    cdef uint64_t mixed = key * <uint64_t>0x9E3779B97F4A7C15
    return mixed ^ (mixed >> 29)


cdef inline uint32_t delta_of(int64_t stored_at_ms, int64_t created_ms) noexcept nogil:
    cdef uint64_t delta
    if stored_at_ms <= created_ms:
        return 0
    delta = <uint64_t>stored_at_ms - <uint64_t>created_ms
    return <uint32_t>0xFFFFFFFF if delta >> 32 else <uint32_t>delta


cdef class EntrySource:
    cdef readonly uint64_t base
    cdef readonly int64_t created_ms
    cdef const IndexEntry* find_run(self, uint64_t key, uint32_t* count) noexcept


cdef class SegmentIndex(EntrySource):
    cdef QueueSlot* slots
    cdef size_t mask
    cdef readonly size_t used
    cdef readonly size_t entry_count
    cdef public size_t checked   # batches whose ids were checked; too many when a write was refused
    cdef QueueSlot* find(self, uint64_t key) noexcept
    cdef QueueSlot* claim(self, uint64_t key) except NULL
    cdef int add(self, QueueSlot* slot, uint64_t base_offset, uint32_t at, uint32_t size, uint32_t count, int64_t stored_at_ms) except -1
    cdef int take_back(self, uint64_t key) except -1
    cdef int grow(self) except -1


cdef class SealedIndex(EntrySource):
    cdef object buffer
    cdef const uint8_t[::1] view
    cdef const DirectoryEntry* directory
    cdef const IndexEntry* entries
    cdef readonly uint32_t directory_count
    cdef readonly uint32_t entry_count
    cdef readonly uint64_t end
    cdef const DirectoryEntry* find(self, uint64_t key) noexcept
