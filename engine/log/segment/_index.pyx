# cython: language_level=3
"""The batches of each queue in a segment: a hash of growable arrays while it is active, a sorted file once it is
sealed.

Reference: index.py. Byte layout of the file: docs/format/log.md. Only the loop's thread changes an index; `encode` and
`counters` may run in another thread once the segment is full, because nothing changes it any more.
"""
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize


def crc32c(data, uint32_t crc=0):
    """CRC-32C of `data`, continuing `crc`."""
    cdef const uint8_t[::1] view = data
    cdef size_t size = view.shape[0]
    if size < 65536:
        return crc32c_extend(crc, &view[0], size) if size else crc
    with nogil:
        crc = crc32c_extend(crc, &view[0], size)
    return crc


def choose_crc32c(int best):
    """For tests: compute checksums in a slower way. 1 tables, 2 the processor's instruction, 3 three lanes of it.

    Returns the way in use: a processor may lack the one asked for.
    """
    crc32c_choose(best)
    return crc32c_mode


cdef int compare_slots(const void* left, const void* right) noexcept nogil:
    cdef uint64_t a = (<QueueSlot**>left)[0].key
    cdef uint64_t b = (<QueueSlot**>right)[0].key
    return (a > b) - (a < b)


cdef class EntrySource:
    """Entries per queue, sorted by offset."""

    cdef const IndexEntry* find_run(self, uint64_t key, uint32_t* count) noexcept:
        count[0] = 0
        return NULL

    def entries(self, uint32_t topic_id, uint32_t queue):
        """[(base offset, byte address in the file, size, count, stored delta in ms)] of a queue; for tests and
        tools."""
        cdef uint32_t count = 0
        cdef const IndexEntry* run = self.find_run(key_of(topic_id, queue), &count)
        return [(run[i].base_offset, run[i].at, run[i].size, run[i].count, run[i].stored_delta_ms) for i in range(count)]

    def first_offset(self, uint32_t topic_id, uint32_t queue):
        """Base offset of the queue's first batch in this segment, or None."""
        cdef uint32_t count = 0
        cdef const IndexEntry* run = self.find_run(key_of(topic_id, queue), &count)
        return run[0].base_offset if count else None

    def committed_end(self, uint32_t topic_id, uint32_t queue, uint64_t limit_at):
        """Offset after the queue's last batch that begins below `limit_at`; None when the queue has no batch here.

        A queue whose only batches here lie above the limit ends where the first of them begins.
        """
        cdef uint32_t count = 0
        cdef const IndexEntry* run = self.find_run(key_of(topic_id, queue), &count)
        if count == 0:
            return None
        while count and run[count - 1].at >= limit_at:
            count -= 1
        return run[count - 1].base_offset + run[count - 1].count if count else run[0].base_offset

    def offset_at_time(self, uint32_t topic_id, uint32_t queue, int64_t at_ms, uint64_t limit_at):
        """Base offset of the first batch stored at or after `at_ms` below the limit, or None. Binary search."""
        cdef uint32_t count = 0
        cdef const IndexEntry* run = self.find_run(key_of(topic_id, queue), &count)
        while count and run[count - 1].at >= limit_at:
            count -= 1
        cdef uint32_t low = 0
        cdef uint32_t high = count
        cdef uint32_t middle
        cdef uint32_t wanted = delta_of(at_ms, self.created_ms)
        while low < high:
            middle = (low + high) >> 1
            if run[middle].stored_delta_ms < wanted:
                low = middle + 1
            else:
                high = middle
        return run[low].base_offset if low < count else None

    def locate(self, uint32_t topic_id, uint32_t queue, uint64_t offset):
        """Byte address of the queue's last batch that begins at or below the offset, or None. Binary search."""
        cdef uint32_t count = 0
        cdef const IndexEntry* run = self.find_run(key_of(topic_id, queue), &count)
        cdef uint32_t low = 0
        cdef uint32_t high = count
        cdef uint32_t middle
        while low < high:
            middle = (low + high) >> 1
            if run[middle].base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return run[low - 1].at if low else None

    def offset_within(self, uint32_t topic_id, uint32_t queue, uint64_t size, uint64_t limit_at, bint is_newest):
        """Find the queue's oldest batch such that it and those after it have at most `size` bytes.

        Returns:
            (its base offset, the rest of the size). The offset is None when no batch below the limit fits; the
            queue's newest one always fits. Nothing is left when an older batch did not fit.
        """
        cdef uint32_t count = 0
        cdef const IndexEntry* run = self.find_run(key_of(topic_id, queue), &count)
        cdef bint some = False
        while count and run[count - 1].at >= limit_at:
            count -= 1
        while count and (is_newest or run[count - 1].size <= size):
            size -= min(size, <uint64_t>run[count - 1].size)
            count -= 1
            some = True
            is_newest = False
        return (run[count].base_offset if some else None), (0 if count else size)


cdef class SegmentIndex(EntrySource):
    """Open addressing over queues, each with its array of entries. 32 bytes per slot, 24 per entry.

    At most 70 % of the slots are used, so every probe ends at a free slot.

    Args:
        expected: number of queues to make room for at once.
    """

    def __cinit__(self, uint64_t base, int64_t created_ms, size_t expected=0):
        self.base = base
        self.created_ms = created_ms
        self.mask = 255
        # Doubling a table of a million queues takes a tenth of a second, so the next segment's starts as large as it
        # ended.
        while expected * 10 > (self.mask + 1) * 7:
            self.mask = self.mask * 2 + 1
        self.slots = <QueueSlot*>calloc(self.mask + 1, sizeof(QueueSlot))
        if self.slots == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef size_t i
        if self.slots != NULL:
            # Freeing a million arrays takes a tenth of a second; the sealing thread does it without delaying the loop.
            with nogil:
                for i in range(self.mask + 1):
                    free(self.slots[i].entries)
                free(self.slots)

    cdef QueueSlot* find(self, uint64_t key) noexcept:
        cdef size_t at = hash_of(key) & self.mask
        while self.slots[at].key != key:
            if self.slots[at].key == 0:
                return NULL
            at = (at + 1) & self.mask
        return &self.slots[at]

    cdef QueueSlot* claim(self, uint64_t key) except NULL:
        """The queue's slot, created when missing.

        Slots move when the table grows: do not keep the pointer over a claim.
        """
        cdef QueueSlot* slot = self.find(key)
        if slot != NULL:
            return slot
        if (self.used + 1) * 10 > (self.mask + 1) * 7:
            self.grow()
        cdef size_t at = hash_of(key) & self.mask
        while self.slots[at].key != 0:
            at = (at + 1) & self.mask
        self.slots[at].key = key
        self.used += 1
        return &self.slots[at]

    cdef int grow(self) except -1:
        cdef size_t mask = self.mask * 2 + 1
        cdef QueueSlot* grown = <QueueSlot*>calloc(mask + 1, sizeof(QueueSlot))
        cdef size_t i, at
        if grown == NULL:
            raise MemoryError()
        for i in range(self.mask + 1):
            if self.slots[i].key != 0:
                at = hash_of(self.slots[i].key) & mask
                while grown[at].key != 0:
                    at = (at + 1) & mask
                grown[at] = self.slots[i]
        free(self.slots)
        self.slots = grown
        self.mask = mask
        return 0

    cdef int add(self, QueueSlot* slot, uint64_t base_offset, uint32_t at, uint32_t size, uint32_t count, int64_t stored_at_ms) except -1:
        cdef IndexEntry* run
        cdef uint32_t capacity
        if slot.count == slot.capacity:
            # One entry first: with a million queues most have one batch per segment.
            capacity = slot.capacity * 2 if slot.capacity else 1
            run = <IndexEntry*>realloc(slot.entries, capacity * sizeof(IndexEntry))
            if run == NULL:
                raise MemoryError()
            slot.entries = run
            slot.capacity = capacity
        run = &slot.entries[slot.count]
        run.base_offset = base_offset
        run.at = at
        run.size = size
        run.count = count
        run.stored_delta_ms = delta_of(stored_at_ms, self.created_ms)
        slot.count += 1
        slot.next_offset = base_offset + count
        self.entry_count += 1
        return 0

    cdef int take_back(self, uint64_t key) except -1:
        """Undo the queue's latest add; its offsets are free again."""
        cdef QueueSlot* slot = self.find(key)
        assert slot != NULL and slot.count > 0
        slot.count -= 1
        slot.next_offset = slot.entries[slot.count].base_offset
        self.entry_count -= 1
        return 0

    cdef const IndexEntry* find_run(self, uint64_t key, uint32_t* count) noexcept:
        cdef QueueSlot* slot = self.find(key)
        count[0] = slot.count if slot != NULL else 0
        return slot.entries if slot != NULL else NULL

    def add_entry(self, uint32_t topic_id, uint32_t queue, uint64_t base_offset, uint32_t at, uint32_t size, uint32_t count,
                  int64_t stored_at_ms):
        """Take a batch into the index; for recovery, when its checksum is wrong but its offsets are known."""
        self.add(self.claim(key_of(topic_id, queue)), base_offset, at, size, count, stored_at_ms)

    def raise_next(self, uint32_t topic_id, uint32_t queue, uint64_t next_offset):
        """Have the queue continue at that offset at least."""
        cdef QueueSlot* slot = self.claim(key_of(topic_id, queue))
        slot.next_offset = max(slot.next_offset, next_offset)

    def committed_end(self, uint32_t topic_id, uint32_t queue, uint64_t limit_at):
        """See EntrySource."""
        cdef QueueSlot* slot = self.find(key_of(topic_id, queue))
        if slot == NULL or slot.count == 0:
            return None
        if slot.entries[slot.count - 1].at < limit_at:
            return slot.next_offset  # after its last batch, or where it was raised to
        return EntrySource.committed_end(self, topic_id, queue, limit_at)

    def next_offset(self, uint32_t topic_id, uint32_t queue):
        """Offset of the queue's next record, staged ones included; None when the queue is not known here."""
        cdef QueueSlot* slot = self.find(key_of(topic_id, queue))
        return slot.next_offset if slot != NULL else None

    def counters(self):
        """A copy that knows each queue's next offset but no entries."""
        cdef SegmentIndex copy = SegmentIndex(self.base, self.created_ms)
        cdef size_t i
        cdef QueueSlot* slots = <QueueSlot*>malloc((self.mask + 1) * sizeof(QueueSlot))
        if slots == NULL:
            raise MemoryError()
        with nogil:
            for i in range(self.mask + 1):
                slots[i].key = self.slots[i].key
                slots[i].next_offset = self.slots[i].next_offset
                slots[i].entries = NULL
                slots[i].count = 0
                slots[i].capacity = 0
        free(copy.slots)
        copy.slots = slots
        copy.mask = self.mask
        copy.used = self.used
        return copy

    def encode(self):
        """(number of directory entries, number of entries, their bytes), sorted by topic id, queue and offset."""
        cdef size_t queues = 0
        cdef size_t i
        cdef QueueSlot** order = <QueueSlot**>malloc((self.used + 1) * sizeof(QueueSlot*))
        cdef DirectoryEntry* directory
        cdef IndexEntry* entries
        cdef uint32_t first = 0
        if order == NULL:
            raise MemoryError()
        try:
            with nogil:
                for i in range(self.mask + 1):
                    if self.slots[i].count:
                        order[queues] = &self.slots[i]
                        queues += 1
                qsort(order, queues, sizeof(QueueSlot*), compare_slots)
            body = PyBytes_FromStringAndSize(NULL, queues * sizeof(DirectoryEntry) + self.entry_count * sizeof(IndexEntry))
            directory = <DirectoryEntry*>PyBytes_AS_STRING(body)
            entries = <IndexEntry*>(PyBytes_AS_STRING(body) + queues * sizeof(DirectoryEntry))
            with nogil:
                for i in range(queues):
                    directory[i].topic_id = <uint32_t>(order[i].key >> 32)
                    directory[i].queue = <uint32_t>order[i].key
                    directory[i].first_entry = first
                    directory[i].entry_count = order[i].count
                    directory[i].next_offset = order[i].next_offset
                    memcpy(&entries[first], order[i].entries, order[i].count * sizeof(IndexEntry))
                    first += order[i].count
        finally:
            free(order)
        return queues, self.entry_count, body


cdef class SealedIndex(EntrySource):
    """The index file of a sealed segment, read in place. The caller has verified its checksum.

    Every access stays within `body`: its size is checked against the counts here, and `find_run` checks each directory
    entry against the number of entries.

    Args:
        body: all bytes after the file's header: the directory, then the entries.
    """

    def __init__(self, uint64_t base, int64_t created_ms, uint64_t end, uint32_t directory_count, uint32_t entry_count, body):
        self.base = base
        self.created_ms = created_ms
        self.end = end
        self.directory_count = directory_count
        self.entry_count = entry_count
        self.buffer = body
        self.view = body
        cdef size_t needed = <size_t>directory_count * sizeof(DirectoryEntry) + <size_t>entry_count * sizeof(IndexEntry)
        if <size_t>self.view.shape[0] < needed:
            raise ValueError("an index shorter than its counts")
        if needed:
            self.directory = <const DirectoryEntry*>&self.view[0]
            self.entries = <const IndexEntry*>(&self.view[0] + directory_count * sizeof(DirectoryEntry))

    cdef const DirectoryEntry* find(self, uint64_t key) noexcept:
        cdef uint32_t low = 0
        cdef uint32_t high = self.directory_count
        cdef uint32_t middle
        while low < high:
            middle = (low + high) >> 1
            if key_of(self.directory[middle].topic_id, self.directory[middle].queue) < key:
                low = middle + 1
            else:
                high = middle
        if low < self.directory_count and key_of(self.directory[low].topic_id, self.directory[low].queue) == key:
            return &self.directory[low]
        return NULL

    cdef const IndexEntry* find_run(self, uint64_t key, uint32_t* count) noexcept:
        cdef const DirectoryEntry* found = self.find(key)
        count[0] = 0
        if found == NULL or <uint64_t>found.first_entry + found.entry_count > self.entry_count:
            return NULL
        count[0] = found.entry_count
        return &self.entries[found.first_entry]

    def queues(self, uint32_t start, uint32_t count):
        """[(topic id, queue, first offset, next offset)] of up to `count` queues from the directory's entry `start`
        on."""
        cdef uint32_t i
        found = []
        for i in range(start, min(<uint64_t>start + count, <uint64_t>self.directory_count)):
            found.append((
                self.directory[i].topic_id, self.directory[i].queue,
                self.entries[self.directory[i].first_entry].base_offset, self.directory[i].next_offset,
            ))
        return found
