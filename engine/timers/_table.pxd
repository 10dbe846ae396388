# cython: language_level=3
"""Table of pending timers, for `cimport` by _load.pyx."""
from libc.stdint cimport uint32_t, uint64_t

cdef enum:
    LEVELS = 4
    SLOTS = 8192
    WORDS = 128


cdef inline uint32_t mix(uint32_t topic_id, Py_hash_t hashed) noexcept:
    return <uint32_t>(<uint64_t>hashed ^ <uint64_t>topic_id * <uint64_t>0x9E3779B1)


cdef class TimerTable:
    cdef uint64_t* due               # due time << 16 | segment number
    cdef uint32_t* address           # 0: removed or free
    cdef uint32_t* hashes
    cdef uint32_t* following
    cdef size_t room, used           # cells that exist, and that were ever used
    cdef uint32_t free_cell
    cdef size_t live, removed
    cdef uint32_t* index             # open addressing: cell + 1, 0 is free
    cdef size_t index_mask
    cdef uint32_t heads[LEVELS][SLOTS]
    cdef uint64_t used_slots[LEVELS][WORDS]  # one bit per slot with cells
    cdef uint64_t cursor_ms
    cdef dict numbers                # base of a segment -> its number
    cdef list bases                  # number -> base
    cdef list spare
    cdef uint32_t* counts            # by number
    cdef uint32_t number_of(self, uint64_t base) except? 0xFFFFFFFF
    cdef uint32_t new_cell(self) except? 0xFFFFFFFF
    cdef int more_room(self) except -1
    cdef void place(self, uint32_t cell) noexcept
    cdef void release(self, uint32_t cell) noexcept
    cdef size_t home(self, uint32_t hashed) noexcept
    cdef void enter(self, uint32_t cell) noexcept
    cdef int grow_index(self) except -1
    cdef void leave(self, uint32_t cell) noexcept
    cdef int put(self, uint32_t number, uint32_t at, uint64_t due_ms, uint32_t hashed) except -1
    cdef uint32_t cell_of(self, uint64_t base, uint32_t at, uint32_t hashed) except? 0xFFFFFFFF
    cdef int rebuild(self) except -1
    cdef bint spread(self, int level, uint64_t unit, size_t* budget) noexcept
    cdef bint reach(self, size_t* budget) noexcept
    cdef uint64_t soonest(self, uint64_t early) noexcept
    cdef uint64_t next_in(self, int level, uint64_t first, uint64_t end) noexcept
