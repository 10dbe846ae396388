# cython: language_level=3
"""Ids of messages, and the window of ids that sends are checked against. Reference: ids.py."""
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from cpython.bytes cimport PyBytes_FromStringAndSize

from engine.link.constants cimport BATCH_CHECK_IDS, BATCH_HEADER_SIZE, CLAIM_QUEUE
from engine.link.loads cimport load32, load64
from engine.log.segment._index cimport BatchHeader

cdef enum:
    SLOTS_MIN = 4096
    SLOT_SIZE = sizeof(IdEntry) + 2
    LEFT_S_MAX = 86461           # of a restored id: the longest window, a claim's minute, and the rounding
    TABLES_LEAST = 7             # tables that fit, so that dropping one for room loses a small part of the window

cdef extern from *:
    """
    #include <sys/mman.h>
    #define prefetch(p) __builtin_prefetch(p)
    /* Zero without being written, so that a large table costs nothing until it is used. */
    static void* map_zeros(size_t size) {
        void* made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return made == MAP_FAILED ? NULL : made;
    }
    """
    void prefetch(const void* p) nogil
    void* map_zeros(size_t size) nogil
    int munmap(void* p, size_t size) nogil

cdef const char* HEX = b"0123456789abcdef"


cdef inline uint64_t filter_bits(const Hash* hash) noexcept nogil:
    """Four bits of a filter's word."""
    cdef uint64_t one = 1
    return one << (hash.high & 63) | one << (hash.high >> 6 & 63) | one << (hash.high >> 12 & 63) | one << (hash.high >> 18 & 63)


cdef class IdWindow:
    """Recent ids, with the queue and offset of their first copies, in tables that fill one after the other.

    A table is never full, so every probe ends at a free slot.

    Args:
        log_id: key of the hash.
        bytes_max: size of all tables; at the limit the oldest one is dropped early, which shortens the window.
    """

    def __cinit__(self, bytes log_id, size_t bytes_max):
        cdef const uint8_t* key = log_id
        assert len(log_id) == 16
        memcpy(&self.k0, key, 8)
        memcpy(&self.k1, key + 8, 8)
        self.slots_max = bytes_max // SLOT_SIZE
        self.capacity = self.slots_max // 4 * 3

    def __dealloc__(self):
        cdef int i
        for i in range(self.table_count):
            munmap(self.tables[i].slots, (self.tables[i].mask + 1) * SLOT_SIZE)
        free(self.tables)
        free(self.undo)

    @property
    def count(self):
        """Number of remembered ids; some may be past their window."""
        return self.entries

    @property
    def size_bytes(self):
        """Size of the tables."""
        return self.slots_used * SLOT_SIZE

    cdef bint hash_record(self, uint32_t topic_id, const uint8_t* record, Hash* hash) noexcept nogil:
        """Hash the topic and the record's id as clients see it; False when it has none.

        The record's size was checked by the appender: it has a flags byte, and 16 bytes of id when the flag says so.
        """
        cdef uint32_t size = load32(record)
        cdef uint8_t shown[32]
        cdef Names names
        cdef int i
        if record[4] & 1:
            for i in range(16):
                shown[2 * i] = HEX[record[5 + i] >> 4]
                shown[2 * i + 1] = HEX[record[5 + i] & 15]
            siphash128(self.k0, self.k1 ^ topic_id, shown, 32, &hash.low, &hash.high)
            return True
        if not find_names(record + 5, size - 1, &names) or names.id == NULL:
            return False
        siphash128(self.k0, self.k1 ^ topic_id, names.id, names.id_size, &hash.low, &hash.high)
        return True

    cdef IdEntry* find(self, const Hash* hash, uint32_t now_s) noexcept nogil:
        cdef int i
        cdef size_t at
        cdef IdTable* table
        cdef IdEntry* entry
        cdef IdEntry* claim = NULL
        cdef uint64_t bits = filter_bits(hash)
        # Each may be a cache miss; fetched together they cost little more than one.
        for i in range(self.table_count):
            prefetch(&self.tables[i].filter[(hash.low & self.tables[i].mask) >> 2])
        for i in range(self.table_count - 1, -1, -1):
            table = &self.tables[i]
            at = hash.low & table.mask
            if table.filter[at >> 2] & bits != bits:
                continue
            while table.slots[at].expires_s:
                entry = &table.slots[at]
                if entry.low == hash.low and entry.high == hash.high and entry.expires_s > now_s:
                    if not entry.queue & CLAIM_QUEUE:
                        return entry
                    if claim == NULL:
                        claim = entry
                at = (at + 1) & table.mask
        return claim

    cdef int add(self, const Hash* hash, uint64_t offset, uint32_t queue, uint32_t expires_s, uint32_t now_s) except -1:
        cdef IdTable* table
        cdef IdEntry* entry
        cdef uint64_t* grown
        cdef size_t at
        while self.table_count > 1 and self.tables[0].expires_s <= now_s:
            self.drop_oldest(now_s)
        if self.table_count == 0 or self.tables[self.table_count - 1].count * 4 >= (self.tables[self.table_count - 1].mask + 1) * 3:
            self.add_table(now_s)
        if self.undo_count + 2 > self.undo_room:
            grown = <uint64_t*>realloc(self.undo, (self.undo_room * 2 + 64) * sizeof(uint64_t))
            if grown == NULL:
                raise MemoryError()
            self.undo = grown
            self.undo_room = self.undo_room * 2 + 64
        table = &self.tables[self.table_count - 1]
        at = hash.low & table.mask
        table.filter[at >> 2] |= filter_bits(hash)
        while table.slots[at].expires_s:
            at = (at + 1) & table.mask
        entry = &table.slots[at]
        entry.low, entry.high, entry.offset, entry.queue, entry.expires_s = hash.low, hash.high, offset, queue, expires_s
        table.count += 1
        self.entries += 1
        if expires_s > table.expires_s:
            table.expires_s = expires_s
        self.undo[self.undo_count] = table.number
        self.undo[self.undo_count + 1] = at
        self.undo_count += 2
        return 0

    cdef void commit(self) noexcept:
        """Keep the ids that were added."""
        self.undo_count = 0

    cdef void take_back(self) noexcept:
        """Forget the ids added since the last commit(), the last one first, so that no chain of slots is cut."""
        cdef uint64_t number
        cdef IdTable* table
        while self.undo_count:
            self.undo_count -= 2
            number = self.undo[self.undo_count]
            if self.table_count == 0 or number < self.tables[0].number:
                continue
            table = &self.tables[number - self.tables[0].number]
            table.slots[self.undo[self.undo_count + 1]].expires_s = 0
            table.count -= 1
            self.entries -= 1

    cdef int add_table(self, uint32_t now_s) except -1:
        """Add a table as large as all remembered ids, within bounds.

        So a look-up searches few tables, and each is a small part of a full window.
        """
        cdef size_t slots = SLOTS_MIN
        cdef size_t wanted = max(self.entries, self.expected)
        cdef IdTable* grown
        cdef IdEntry* fresh
        while slots * 3 < wanted * 4 and slots * 2 * TABLES_LEAST <= self.slots_max:
            slots *= 2
        while self.table_count and self.slots_used + slots > self.slots_max:
            self.drop_oldest(now_s)
        if self.table_count == self.table_room:
            grown = <IdTable*>realloc(self.tables, (self.table_room * 2 + 8) * sizeof(IdTable))
            if grown == NULL:
                raise MemoryError()
            self.tables = grown
            self.table_room = self.table_room * 2 + 8
        fresh = <IdEntry*>map_zeros(slots * SLOT_SIZE)
        if fresh == NULL:
            raise MemoryError()
        self.tables[self.table_count] = IdTable(
            filter=<uint64_t*>(fresh + slots), slots=fresh, mask=slots - 1, count=0, number=self.tables_made, expires_s=0
        )
        self.tables_made += 1
        self.table_count += 1
        self.slots_used += slots
        return 0

    cdef void drop_oldest(self, uint32_t now_s) noexcept:
        cdef IdTable* oldest = &self.tables[0]
        if oldest.expires_s > now_s:
            self.forgotten += oldest.count
        self.entries -= oldest.count
        self.slots_used -= oldest.mask + 1
        munmap(oldest.slots, (oldest.mask + 1) * SLOT_SIZE)
        self.table_count -= 1
        memmove(self.tables, self.tables + 1, self.table_count * sizeof(IdTable))

    def load(self, const uint8_t[::1] entries not None, int64_t now_ms):
        """Add entries as collect() returns them, older ones first; those past their window are left out.

        One that was stamped by a clock that was ahead is kept for LEFT_S_MAX at most.
        """
        cdef size_t i, count = entries.shape[0] // sizeof(IdEntry)
        cdef IdEntry entry
        cdef Hash hash
        cdef uint32_t now_s = <uint32_t>(now_ms // 1000)
        self.expected = max(self.expected, count)
        for i in range(count):
            memcpy(&entry, &entries[i * sizeof(IdEntry)], sizeof(IdEntry))
            if entry.expires_s > now_s:
                hash.low, hash.high = entry.low, entry.high
                self.add(&hash, entry.offset, entry.queue, min(entry.expires_s, now_s + LEFT_S_MAX), now_s)
                self.commit()
        self.expected = 0

    def find_id(self, uint32_t topic_id, bytes shown, int64_t now_ms):
        """(queue, offset) of the id's first copy within its window, or None."""
        cdef Hash hash
        cdef IdEntry* found
        siphash128(self.k0, self.k1 ^ topic_id, shown, len(shown), &hash.low, &hash.high)
        found = self.find(&hash, <uint32_t>(now_ms // 1000))
        return None if found == NULL else (found.queue, found.offset)

    def collect(self, const uint8_t[::1] data not None, size_t at, size_t end):
        """Entries of 32 bytes for all batches with the flag "check ids" among the whole batches from `at` to `end`.

        The caller has verified the batches in that range, so each header lies within it and its size leads to the next.
        """
        cdef uint8_t* out = NULL
        cdef uint8_t* grown
        cdef size_t used = 0, room = 0
        cdef BatchHeader* header
        cdef IdEntry* entry
        cdef Hash hash
        with nogil:
            while at < end:
                header = <BatchHeader*>&data[at]
                at += (<size_t>header.size + 7) & ~<size_t>7
                if not header.flags & BATCH_CHECK_IDS or not self.hash_record(header.topic_id, <uint8_t*>header + BATCH_HEADER_SIZE, &hash):
                    continue
                if used + sizeof(IdEntry) > room:
                    grown = <uint8_t*>realloc(out, room * 2 + 4096)
                    if grown == NULL:
                        break
                    out, room = grown, room * 2 + 4096
                entry = <IdEntry*>(out + used)
                entry.low, entry.high, entry.offset, entry.queue = hash.low, hash.high, header.base_offset, header.queue
                entry.expires_s = expiry_s(header.stored_at_ms, header.reserved)
                used += sizeof(IdEntry)
        try:
            if at < end:
                raise MemoryError()
            return PyBytes_FromStringAndSize(<char*>out, used)
        finally:
            free(out)


def siphash(bytes key not None, bytes data not None):
    """SipHash-2-4 with 128 bits of output, for tests."""
    cdef Hash hash
    cdef const uint8_t* k = key
    siphash128(load64(k), load64(k + 8), data, len(data), &hash.low, &hash.high)
    return (<char*>&hash)[:16]
