# cython: language_level=3
"""Armed queues and woken queues of an appender: a hash set of keys, and a list that grows until it is taken."""
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, realloc

from engine.log.segment._index cimport hash_of


cdef struct Watches:
    uint64_t* slots              # open addressing, 0 is free; at most half full, so every probe ends at a free slot
    size_t mask
    size_t count
    uint64_t* woken
    size_t woken_count
    size_t woken_ready           # number of leading entries whose records can be read
    size_t woken_room


cdef inline int init_watches(Watches* self) except -1:
    self.mask = 63
    self.count = self.woken_count = self.woken_ready = self.woken_room = 0
    self.woken = NULL
    self.slots = <uint64_t*>calloc(self.mask + 1, sizeof(uint64_t))
    if self.slots == NULL:
        raise MemoryError()
    return 0


cdef inline void free_watches(Watches* self) noexcept:
    free(self.slots)
    free(self.woken)


cdef inline int grow_watches(Watches* self) except -1:
    cdef uint64_t* old = self.slots
    cdef size_t at, i, mask = self.mask
    cdef uint64_t* grown = <uint64_t*>calloc((mask + 1) * 2, sizeof(uint64_t))
    if grown == NULL:
        raise MemoryError()
    self.slots, self.mask = grown, mask * 2 + 1
    for i in range(mask + 1):
        if old[i]:
            at = hash_of(old[i]) & self.mask
            while grown[at]:
                at = (at + 1) & self.mask
            grown[at] = old[i]
    free(old)
    return 0


cdef inline int arm(Watches* self, uint64_t key) except -1:
    cdef size_t at
    if (self.count + 1) * 2 > self.mask + 1:
        grow_watches(self)
    at = hash_of(key) & self.mask
    while self.slots[at]:
        if self.slots[at] == key:
            return 0
        at = (at + 1) & self.mask
    self.slots[at] = key
    self.count += 1
    return 0


cdef inline bint disarm(Watches* self, uint64_t key) noexcept:
    """Remove the key; returns whether it was there. Moves later keys of the cluster up, so that no tombstone stays."""
    cdef size_t at = hash_of(key) & self.mask
    cdef size_t hole, home
    while self.slots[at] != key:
        if self.slots[at] == 0:
            return False
        at = (at + 1) & self.mask
    hole = at
    while True:
        at = (at + 1) & self.mask
        if self.slots[at] == 0:
            break
        home = hash_of(self.slots[at]) & self.mask
        if ((at - home) & self.mask) >= ((at - hole) & self.mask):
            self.slots[hole] = self.slots[at]
            hole = at
    self.slots[hole] = 0
    self.count -= 1
    return True


cdef inline int wake(Watches* self, uint64_t key) except -1:
    """Add a queue that was armed. It is returned by `take_ready` once the write that woke it is done."""
    cdef uint64_t* grown
    if self.woken_count == self.woken_room:
        grown = <uint64_t*>realloc(self.woken, (self.woken_room * 2 + 64) * sizeof(uint64_t))
        if grown == NULL:
            raise MemoryError()
        self.woken = grown
        self.woken_room = self.woken_room * 2 + 64
    self.woken[self.woken_count] = key
    self.woken_count += 1
    return 0


cdef inline list take_ready(Watches* self):
    cdef size_t i
    if self.woken_ready == 0:
        return []
    cdef list found = []
    for i in range(self.woken_ready):
        found.append((<unsigned int>(self.woken[i] >> 32), <unsigned int>self.woken[i]))
    for i in range(self.woken_ready, self.woken_count):
        self.woken[i - self.woken_ready] = self.woken[i]
    self.woken_count -= self.woken_ready
    self.woken_ready = 0
    return found
