# cython: language_level=3
"""Lookup entries and their layout in blocks, for the collector."""
from libc.stdint cimport uint32_t, uint64_t


cdef packed struct LookupEntry:
    uint64_t hash
    uint32_t at                  # of the batch in the segment's file


cdef bytes packed_blocks(const LookupEntry* entries, size_t used, size_t first, size_t count, bytes seed, uint32_t number)
