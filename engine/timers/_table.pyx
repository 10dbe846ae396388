# cython: language_level=3, boundscheck=False, wraparound=False
"""Table of pending timers: a hierarchical timing wheel and a hash of ids over one array of cells. Reference: table.py.

A cell takes 20 bytes: due time (48 bits), number of its segment (16), byte address in the segment's file, hash of topic
and id, next cell of its list. Bodies stay in the log. With the hash's 4-byte slots a timer costs 25 to 30 bytes.

The wheel has four levels of 8,192 slots of 1 ms, 4 s, 4.7 h and 2.2 years. Half of a level covers one slot of the level
above. A slot is spread over the level below in small steps while the slot before it passes, so no call has to move ten
million cells. A removed cell stays in its list until its slot is reached or half of all cells are removed.

Bounds: `due`, `address`, `hashes` and `following` have `room` entries; lists and index hold only cells below `used`.
`index` has `index_mask + 1` entries, at most 85 % used, so probes end. Slots are masked; segments < SEGMENTS_MAX.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

cdef enum:
    BITS = 12
    MASK = 8191
    SEGMENTS_MAX = 65536
    SPREAD = 4096                # cells moved early per call

cdef uint32_t NIL = 0xFFFFFFFF


def hash_id(uint32_t topic_id, bytes shown_id):
    """Return 32 bits that differ between processes, so that clients cannot choose ids that collide."""
    return mix(topic_id, hash(shown_id))


cdef class TimerTable:
    """Pending timers by due time, by id and by segment.

    Args:
        now_ms: the wheel's present.
    """

    def __cinit__(self, now_ms):
        cdef int level
        self.cursor_ms = max(0, now_ms)
        for level in range(LEVELS):
            memset(self.heads[level], 0xFF, sizeof(self.heads[level]))
        memset(self.used_slots, 0, sizeof(self.used_slots))
        self.free_cell = NIL
        self.index_mask = 255
        self.index = <uint32_t*>calloc(256, sizeof(uint32_t))
        self.counts = <uint32_t*>calloc(SEGMENTS_MAX, sizeof(uint32_t))
        if self.index == NULL or self.counts == NULL:
            raise MemoryError()
        self.numbers, self.bases, self.spare = {}, [], []

    def __dealloc__(self):
        free(self.due)
        free(self.address)
        free(self.hashes)
        free(self.following)
        free(self.index)
        free(self.counts)

    def __len__(self):
        return self.live

    @property
    def cursor(self):
        """Time up to which all due timers have been removed."""
        return self.cursor_ms

    @property
    def memory_bytes(self):
        """Memory of cells and hash."""
        return 20 * self.used + 4 * (self.index_mask + 1) + sizeof(self.heads)

    # -- cells
    cdef uint32_t number_of(self, uint64_t base) except? 0xFFFFFFFF:
        found = self.numbers.get(base)
        if found is None:
            if self.spare:
                found = self.spare.pop()
                self.bases[found] = base
            elif len(self.bases) < SEGMENTS_MAX:
                found = len(self.bases)
                self.bases.append(base)
            else:
                raise OverflowError(f"delayed messages lie in more than {SEGMENTS_MAX} segments")
            self.numbers[base] = found
        return found

    cdef uint32_t new_cell(self) except? 0xFFFFFFFF:
        cdef uint32_t cell = self.free_cell
        if cell != NIL:
            self.free_cell = self.following[cell]
            return cell
        if self.used == self.room:
            self.more_room()
        self.used += 1
        return <uint32_t>(self.used - 1)

    cdef int more_room(self) except -1:
        # Doubled arrays are mapped but not touched, so unused entries take no memory.
        cdef size_t room = self.room * 2 if self.room else 1024
        self.due = <uint64_t*>resized(self.due, room * 8)
        self.address = <uint32_t*>resized(self.address, room * 4)
        self.hashes = <uint32_t*>resized(self.hashes, room * 4)
        self.following = <uint32_t*>resized(self.following, room * 4)
        self.room = room
        return 0

    cdef void place(self, uint32_t cell) noexcept:
        """Put the cell into the list of its due time, or of the present if that has passed."""
        cdef uint64_t due_ms = self.due[cell] >> 16
        cdef int level = 0
        cdef uint32_t slot
        if due_ms < self.cursor_ms:
            due_ms = self.cursor_ms
        while level < LEVELS - 1 and (due_ms >> (BITS * level)) - (self.cursor_ms >> (BITS * level)) >= SLOTS // 2:
            level += 1
        slot = (due_ms >> (BITS * level)) & MASK
        self.following[cell] = self.heads[level][slot]
        self.heads[level][slot] = cell
        self.used_slots[level][slot >> 6] |= <uint64_t>1 << (slot & 63)

    cdef void release(self, uint32_t cell) noexcept:
        self.following[cell] = self.free_cell
        self.free_cell = cell

    # -- the hash

    cdef size_t home(self, uint32_t hashed) noexcept:
        return (hashed * <uint64_t>0x9E3779B97F4A7C15 >> 20) & self.index_mask

    cdef void enter(self, uint32_t cell) noexcept:
        cdef size_t at = self.home(self.hashes[cell])
        while self.index[at]:
            at = (at + 1) & self.index_mask
        self.index[at] = cell + 1

    cdef int grow_index(self) except -1:
        cdef uint32_t* old = self.index
        cdef size_t i, size = self.index_mask + 1
        cdef uint32_t* grown = <uint32_t*>calloc(size * 2, sizeof(uint32_t))
        if grown == NULL:
            raise MemoryError()
        self.index = grown
        self.index_mask = size * 2 - 1
        for i in range(size):
            if old[i]:
                self.enter(old[i] - 1)
        free(old)
        return 0

    cdef void leave(self, uint32_t cell) noexcept:
        """Remove the cell from the hash; later cells of its cluster move up, so that no deletion mark is needed."""
        cdef size_t at = self.home(self.hashes[cell])
        cdef size_t hole, wanted
        while self.index[at] != cell + 1:
            at = (at + 1) & self.index_mask
        hole = at
        while True:
            at = (at + 1) & self.index_mask
            if self.index[at] == 0:
                break
            wanted = self.home(self.hashes[self.index[at] - 1])
            if ((at - wanted) & self.index_mask) >= ((at - hole) & self.index_mask):
                self.index[hole] = self.index[at]
                hole = at
        self.index[hole] = 0

    # -- the interface

    cdef int put(self, uint32_t number, uint32_t at, uint64_t due_ms, uint32_t hashed) except -1:
        cdef uint32_t cell
        if (self.live + 1) * 20 > (self.index_mask + 1) * 17:
            self.grow_index()
        cell = self.new_cell()
        self.due[cell] = (due_ms << 16) | number
        self.address[cell] = at
        self.hashes[cell] = hashed
        self.place(cell)
        self.enter(cell)
        self.counts[number] += 1
        self.live += 1
        return 0

    def insert(self, uint64_t base, uint32_t at, int64_t due_ms, uint32_t hashed):
        """Add a timer. `at` is not 0; due times from 0 to the year 9999."""
        self.put(self.number_of(base), at, <uint64_t>due_ms, hashed)

    cdef uint32_t cell_of(self, uint64_t base, uint32_t at, uint32_t hashed) except? 0xFFFFFFFF:
        cdef size_t where = self.home(hashed)
        cdef uint32_t cell
        found = self.numbers.get(base)
        if found is None:
            return NIL
        while self.index[where]:
            cell = self.index[where] - 1
            if self.address[cell] == at and (self.due[cell] & 0xFFFF) == <uint64_t>found:
                return cell
            where = (where + 1) & self.index_mask
        return NIL

    def remove(self, uint64_t base, uint32_t at, uint32_t hashed):
        """Remove a timer; returns whether it was there."""
        cdef uint32_t cell = self.cell_of(base, at, hashed)
        if cell == NIL:
            return False
        self.leave(cell)
        self.address[cell] = 0
        self.counts[self.due[cell] & 0xFFFF] -= 1
        self.live -= 1
        self.removed += 1
        if self.removed > self.live + 65536:
            self.rebuild()
        return True

    def find(self, uint32_t hashed):
        """Return [(base, byte address, due time)] of the timers with that hash."""
        cdef size_t where = self.home(hashed)
        cdef uint32_t cell
        found = []
        while self.index[where]:
            cell = self.index[where] - 1
            if self.hashes[cell] == hashed:
                found.append((self.bases[self.due[cell] & 0xFFFF], self.address[cell], self.due[cell] >> 16))
            where = (where + 1) & self.index_mask
        return found

    cdef int rebuild(self) except -1:
        """Rebuild the wheel from all cells that are not removed. Tens of nanoseconds per cell."""
        cdef size_t cell
        cdef int level
        for level in range(LEVELS):
            memset(self.heads[level], 0xFF, sizeof(self.heads[level]))
        memset(self.used_slots, 0, sizeof(self.used_slots))
        self.free_cell = NIL
        self.removed = 0
        for cell in range(self.used):
            if self.address[cell]:
                self.place(<uint32_t>cell)
            else:
                self.release(<uint32_t>cell)
        return 0

    cdef bint spread(self, int level, uint64_t unit, size_t* budget) noexcept:
        """Move a slot's cells to the levels below; returns whether the slot is empty now."""
        cdef uint32_t slot = unit & MASK
        cdef uint32_t cell = self.heads[level][slot]
        cdef uint32_t next_cell
        cdef uint64_t due_ms
        cdef uint32_t lower
        while cell != NIL and budget[0]:
            next_cell = self.following[cell]
            if self.address[cell] == 0:
                self.release(cell)
                self.removed -= 1
            else:
                due_ms = max(self.due[cell] >> 16, self.cursor_ms)
                lower = (due_ms >> (BITS * (level - 1))) & MASK
                self.following[cell] = self.heads[level - 1][lower]
                self.heads[level - 1][lower] = cell
                self.used_slots[level - 1][lower >> 6] |= <uint64_t>1 << (lower & 63)
            budget[0] -= 1
            cell = next_cell
        self.heads[level][slot] = cell
        if cell == NIL:
            self.used_slots[level][slot >> 6] &= ~(<uint64_t>1 << (slot & 63))
            return True
        return False

    cdef bint reach(self, size_t* budget) noexcept:
        """Move all cells of the cursor's own slots to the lowest level; False when the budget is used up."""
        cdef int level
        for level in range(LEVELS - 1, 0, -1):
            if not self.spread(level, self.cursor_ms >> (BITS * level), budget):
                return False
        return True

    def pop_due(self, now_ms, size_t limit):
        """Remove and return up to `limit` due timers, in the order of due time and position.

        A timer is (base, byte address, due time, hash). The work is proportional to `limit`; if more is left,
        `next_at()` returns the present. After the clock was set back the wheel is rebuilt.
        """
        cdef uint64_t until = max(0, now_ms)
        cdef size_t budget = 4 * limit + SPREAD
        cdef uint32_t cell, slot
        cdef int level
        cdef uint64_t next_ms, block_end
        due = []
        if until < self.cursor_ms:
            self.cursor_ms = until
            self.rebuild()
        while self.reach(&budget):
            slot = self.cursor_ms & MASK
            cell = self.heads[0][slot]
            while cell != NIL and limit:
                self.heads[0][slot] = self.following[cell]
                if self.address[cell]:
                    due.append((self.bases[self.due[cell] & 0xFFFF], self.address[cell], self.due[cell] >> 16, self.hashes[cell]))
                    self.leave(cell)
                    self.counts[self.due[cell] & 0xFFFF] -= 1
                    self.address[cell] = 0
                    self.live -= 1
                    limit -= 1
                else:
                    self.removed -= 1
                self.release(cell)
                cell = self.heads[0][slot]
            if cell != NIL:
                break
            self.used_slots[0][slot >> 6] &= ~(<uint64_t>1 << (slot & 63))
            if self.cursor_ms == until:
                # The next slots are spread early, in small steps.
                for level in range(LEVELS - 1, 0, -1):
                    self.spread(level, (self.cursor_ms >> (BITS * level)) + 1, &budget)
                break
            block_end = ((self.cursor_ms >> BITS) + 1) << BITS
            next_ms = self.next_in(0, self.cursor_ms, block_end)
            if next_ms == block_end:
                # Empty blocks are skipped: a clock that steps by years passes millions of them.
                next_ms = max(next_ms, self.soonest(0))
            self.cursor_ms = min(next_ms, until)
        due.sort(key=due_and_position)
        return due

    cdef uint64_t next_in(self, int level, uint64_t first, uint64_t end) noexcept:
        """Return the first unit of the level in first..end whose slot is not empty; `end` without one."""
        cdef uint64_t word
        while first < end:
            word = self.used_slots[level][(first & MASK) >> 6] >> (first & 63)
            if word == 0:
                first = (first | 63) + 1
                continue
            while not word & 1:
                word >>= 1
                first += 1
            return min(first, end)
        return end

    def next_at(self):
        """Return the latest time at which `pop_due` has work, or an earlier one; None without pending timers."""
        return self.soonest(1) if self.live else None

    cdef uint64_t soonest(self, uint64_t early) noexcept:
        """Return when the first slot that is not empty begins, or `early` slots of its level before."""
        cdef int level
        cdef uint64_t unit, found, soonest = <uint64_t>1 << 62
        for level in range(LEVELS):
            unit = self.cursor_ms >> (BITS * level)
            found = self.next_in(level, unit, unit + SLOTS)
            if found == unit + SLOTS:
                continue
            if level:
                found = max(found - early, unit) << (BITS * level)
            soonest = min(soonest, max(found, self.cursor_ms))
        return soonest

    def pending_in(self, uint64_t base):
        """Return the number of pending timers in the segment."""
        found = self.numbers.get(base)
        return 0 if found is None else self.counts[<uint32_t>found]

    def detach(self, uint64_t base):
        """Forget a segment without pending timers; its number may be used again."""
        found = self.numbers.get(base)
        if found is None or self.counts[<uint32_t>found]:
            return
        del self.numbers[base]
        self.spare.append(found)

    def scan(self, int64_t start, size_t limit, int64_t base=-1):
        """Return (pending timers among `limit` cells from `start` on, the next start or -1).

        A timer is (base, byte address, due time, hash). `base` limits the result to one segment.
        """
        cdef size_t cell = start
        cdef size_t end = min(self.used, cell + limit)
        cdef uint64_t wanted = SEGMENTS_MAX
        if base >= 0:
            found = self.numbers.get(base)
            if found is None:
                return [], -1
            wanted = found
        entries = []
        while cell < end:
            if self.address[cell] and (wanted == SEGMENTS_MAX or (self.due[cell] & 0xFFFF) == wanted):
                entries.append((self.bases[self.due[cell] & 0xFFFF], self.address[cell], self.due[cell] >> 16, self.hashes[cell]))
            cell += 1
        return entries, cell if cell < self.used else -1


cdef void* resized(void* old, size_t size) except NULL:
    cdef void* grown = realloc(old, size)
    if grown == NULL:
        raise MemoryError()
    return grown


def due_and_position(entry):
    return entry[2], entry[0], entry[1]
