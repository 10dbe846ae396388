# cython: language_level=3
"""Sorted lookup entries: laid out in the blocks of a file, and merged from several files. Reference: merge.py."""
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from engine.log.segment._index cimport crc32c_extend

cdef enum:
    BLOCK = 4096
    BLOCK_HEAD = 8
    BLOCK_ENTRIES = 340


cdef bytes packed_blocks(const LookupEntry* entries, size_t used, size_t first, size_t count, bytes seed, uint32_t number):
    cdef size_t left = used - first if first < used else 0
    cdef size_t i, taken, blocks = min(count, (left + BLOCK_ENTRIES - 1) // BLOCK_ENTRIES)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, blocks * BLOCK)
    cdef uint8_t* block = <uint8_t*>PyBytes_AS_STRING(out)
    cdef uint32_t crc, start = crc32c_extend(0, <const char*>seed, len(seed))
    with nogil:
        memset(block, 0, blocks * BLOCK)
        for i in range(blocks):
            taken = min(left, <size_t>BLOCK_ENTRIES)
            (<uint32_t*>block)[1] = <uint32_t>taken
            memcpy(block + BLOCK_HEAD, entries + first, taken * sizeof(LookupEntry))
            crc = crc32c_extend(start, &number, 4)
            (<uint32_t*>block)[0] = crc32c_extend(crc, block + 4, BLOCK - 4)
            first += taken
            left -= taken
            number += 1
            block += BLOCK
    return out


cdef struct Head:
    const LookupEntry* next
    const LookupEntry* end


cdef class Merger:
    """Merges the sorted entries of several files.

    Args:
        sources: per file its blocks' packed entries in order, none empty.
    """

    cdef list sources, held      # `held`: the packed entries that the heads point to
    cdef Head* heads
    cdef LookupEntry* entries
    cdef size_t used, room

    def __cinit__(self, list sources not None):
        self.sources, self.held = list(sources), [b""] * len(sources)
        self.heads = <Head*>malloc(max(1, len(sources)) * sizeof(Head))
        if self.heads == NULL:
            raise MemoryError()

    def __init__(self, list sources not None):
        cdef size_t i
        for i in range(len(self.sources), 0, -1):
            self.refill(i - 1)

    def __dealloc__(self):
        free(self.heads)
        free(self.entries)

    def fill(self, size_t count):
        """Hold the next `count` entries, fewer at the end; returns their number."""
        cdef LookupEntry* grown
        cdef int empty = 0
        if count > self.room:
            grown = <LookupEntry*>realloc(self.entries, count * sizeof(LookupEntry))
            if grown == NULL:
                raise MemoryError()
            self.entries, self.room = grown, count
        self.used = 0
        while len(self.sources):
            empty = self.merge(count, <int>len(self.sources))
            if empty < 0:
                break
            self.refill(empty)
        return self.used

    def blocks(self, size_t first, size_t count, bytes seed, uint32_t number):
        """Up to `count` blocks of a file, with the entries held from `first` on; the first block has that number."""
        return packed_blocks(self.entries, self.used, first, count, seed, number)

    cdef int merge(self, size_t count, int sources) noexcept:
        """Take entries until there are `count`, or a source's block is used up: returns its number, else -1.

        `fill` has made room for `count` entries, and each head's block has at least one entry.
        """
        cdef int i, lowest
        cdef const LookupEntry* entry
        with nogil:
            while self.used < count:
                lowest = 0
                entry = self.heads[0].next
                for i in range(1, sources):
                    if self.heads[i].next.hash < entry.hash or (self.heads[i].next.hash == entry.hash and self.heads[i].next.at < entry.at):
                        lowest, entry = i, self.heads[i].next
                self.entries[self.used] = entry[0]
                self.used += 1
                self.heads[lowest].next = entry + 1
                if entry + 1 == self.heads[lowest].end:
                    return lowest
        return -1

    cdef int refill(self, size_t number) except -1:
        """Load the source's next block. A source at its end is removed."""
        cdef bytes packed = next(self.sources[number], None)
        cdef size_t last = len(self.sources) - 1
        if packed is None:
            self.heads[number] = self.heads[last]
            self.sources[number], self.held[number] = self.sources[last], self.held[last]
            self.sources.pop()
            self.held.pop()
            return 0
        self.held[number] = packed
        self.heads[number].next = <const LookupEntry*>PyBytes_AS_STRING(packed)
        self.heads[number].end = self.heads[number].next + len(packed) // sizeof(LookupEntry)
        return 0
