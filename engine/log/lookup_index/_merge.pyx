# cython: language_level=3
"""Sorted lookup entries: laid out in the blocks of a file, read from them, and merged from several files.

Reference: merge.py.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
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


def unpacked_blocks(bytes data not None, bytes seed not None, uint32_t number):
    """(entries, number of blocks that have them) of blocks, up to the first that does not verify or is not whole."""
    cdef const uint8_t* block = data
    cdef size_t count, used = 0, i, blocks = len(data) // BLOCK
    cdef uint32_t crc, start = crc32c_extend(0, <const char*>seed, len(seed))
    cdef bytes out = PyBytes_FromStringAndSize(NULL, blocks * BLOCK_ENTRIES * sizeof(LookupEntry))
    cdef LookupEntry* entries = <LookupEntry*>PyBytes_AS_STRING(out)
    with nogil:
        for i in range(blocks):
            count = (<const uint32_t*>block)[1]
            crc = crc32c_extend(crc32c_extend(start, &number, 4), block + 4, BLOCK - 4)
            if crc != (<const uint32_t*>block)[0] or not 1 <= count <= BLOCK_ENTRIES:
                blocks = i
                break
            memcpy(entries + used, block + BLOCK_HEAD, count * sizeof(LookupEntry))
            used += count
            number += 1
            block += BLOCK
    return out[: used * sizeof(LookupEntry)], blocks


cdef struct Head:
    uint64_t hash                # of `next`
    uint32_t at
    const LookupEntry* next
    const LookupEntry* end


cdef inline int precedes(const Head* left, const Head* right) noexcept nogil:
    """1 or 0, without a branch: which one is lower cannot be predicted."""
    return (left.hash < right.hash) | ((left.hash == right.hash) & (left.at < right.at))


cdef inline void look_at(Head* head, const LookupEntry* entry) noexcept nogil:
    head.next, head.hash, head.at = entry, entry.hash, entry.at


cdef class Merger:
    """Merges the sorted entries of several files, by a tree of losers (Knuth, The Art of Computer Programming, 5.4.1).

    Args:
        sources: per file its packed entries in order, in pieces of which none is empty.
    """

    cdef list sources, held      # `held`: the packed entries that the heads point to
    cdef Head* heads
    cdef int* winners            # per node of the tree; the leaves, one per source, are its second half
    cdef int* losers
    cdef LookupEntry* entries
    cdef size_t used, room

    def __cinit__(self, list sources not None):
        cdef size_t count = max(1, len(sources))
        self.sources, self.held = list(sources), [b""] * len(sources)
        self.heads = <Head*>malloc(count * sizeof(Head))
        self.winners = <int*>malloc(2 * count * sizeof(int))
        self.losers = <int*>malloc(count * sizeof(int))
        if self.heads == NULL or self.winners == NULL or self.losers == NULL:
            raise MemoryError()

    def __init__(self, list sources not None):
        cdef size_t i
        for i in range(len(self.sources), 0, -1):
            self.refill(i - 1)

    def __dealloc__(self):
        free(self.heads)
        free(self.winners)
        free(self.losers)
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
        """Take entries until there are `count`, or a source's piece is used up: returns its number, else -1.

        `fill` has made room for `count` entries, and each head's piece has at least one entry.
        """
        cdef int lowest, node, other, change
        cdef Head* head
        with nogil:
            lowest = self.build(sources)
            while self.used < count:
                head = &self.heads[lowest]
                self.entries[self.used] = head.next[0]
                self.used += 1
                if head.next + 1 == head.end:
                    return lowest
                look_at(head, head.next + 1)
                node = (sources + lowest) >> 1
                while node:
                    other = self.losers[node]
                    # Without a branch, too: `change` has the bits in which the two differ when they change places.
                    change = (other ^ lowest) & -precedes(&self.heads[other], &self.heads[lowest])
                    self.losers[node] = other ^ change
                    lowest ^= change
                    node >>= 1
        return -1

    cdef int build(self, int sources) noexcept nogil:
        """Have every two neighbours play against each other; returns the source with the lowest entry."""
        cdef int i, left, right
        for i in range(sources):
            self.winners[sources + i] = i
        for i in range(sources - 1, 0, -1):
            left, right = self.winners[2 * i], self.winners[2 * i + 1]
            if precedes(&self.heads[right], &self.heads[left]):
                left, right = right, left
            self.winners[i], self.losers[i] = left, right
        return self.winners[1]

    cdef int refill(self, size_t number) except -1:
        """Load the source's next piece. A source at its end is removed."""
        cdef bytes packed = next(self.sources[number], None)
        cdef size_t last = len(self.sources) - 1
        if packed is None:
            self.heads[number] = self.heads[last]
            self.sources[number], self.held[number] = self.sources[last], self.held[last]
            self.sources.pop()
            self.held.pop()
            return 0
        self.held[number] = packed
        look_at(&self.heads[number], <const LookupEntry*>PyBytes_AS_STRING(packed))
        self.heads[number].end = self.heads[number].next + len(packed) // sizeof(LookupEntry)
        return 0
