# cython: language_level=3, boundscheck=False, wraparound=False
"""Batches of a tap: messages of some appends as the journal's blocks, without a Python object per message.

The reference is the way of intents.py and batches.py, which get each message as values; `unpacked()` leads there. See
docs/design/0039-dual-write-on-the-hot-path.md.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from common.wire._walk cimport murmur2
from engine.client._append_request cimport AppendItem, AppendRequest, AppendRun
from engine.client._destination cimport Destination
from engine.link.constants cimport ASSIGNED_ID_SIZE, RECORD_HAS_ID

from producer_proxy.journal._block cimport BLOCK_HEAD, ENTRY_HEAD, begin_block, crc32c_extend, end_block
from producer_proxy.journal._area_map cimport AREA_BYTES, AREA_HEAD, AreaMap
from producer_proxy.journal.backlog import packed
from producer_proxy.targets.base import MessageSlice
from producer_proxy.targets.dual import DualDestination

cdef extern from "crc32c.h" nogil:
    void crc32c_setup()

cdef enum:
    MARK_SIZE = 8
    STORED_MARK_SIZE = 16
    SLOTS = 1024                      # as in buffer/ordering_keys.py
    KNOWN_MAX = 1000                  # destinations; then all are found anew
    QUEUE_BITS = 17                   # as in backlog.py
    SPARE_MAX = 4
    MESSAGES_MAX = 512                # of a batch that appends join: it is copied, or left to the repair, as a whole

cdef uint64_t POSITION_MAX = <uint64_t>1 << (63 - QUEUE_BITS)   # below it, an entry's number has 64 bits
cdef uint64_t last_stamp = 0          # of the batch that was made last, in this process
cdef unsigned char* spares[SPARE_MAX] # blocks of AREA_BYTES for the next batches: memory that is new costs its page faults
cdef int spare_count = 0

crc32c_setup()


cdef class TappedTopics:
    """The DualDestinations of a tap's topics; kept, since each batch asks for them. A grade is that of the topic's first append."""

    def __init__(self):
        self.known = {}

    cdef object dual(self, Destination destination):
        found = self.known.get(destination)
        if found is None:
            if len(self.known) >= KNOWN_MAX:
                self.known.clear()
            found = self.known[destination] = DualDestination(
                (<bytes>destination.name).decode("ascii"), destination.queues, destination.durability, destination.grade,
                destination.id_window_ms, destination,
            )
        return found


cdef class TappedBatch:
    """The messages of some appends that have the same tap, as the journal's blocks, and their outcomes at the primary.

    Its intents are in an area of the mapped file, or in a segment of the journal: then `base` says where.
    """

    def __dealloc__(self):
        global spare_count
        free(self.entries)
        free(self.runs)
        if self.cap == AREA_BYTES and spare_count < SPARE_MAX:
            spares[spare_count] = self.blocks
            spare_count += 1
        else:
            free(self.blocks)

    @property
    def size(self):
        return self.used

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        """The blocks. They stay where they are, since no append joins a batch that is cut, and the buffer keeps the batch."""
        if not self.is_cut:
            raise BufferError("appends may still join this batch")
        PyBuffer_FillInfo(buffer, self, self.blocks, self.used, 1, flags)

    @property
    def names(self):
        return {topic.name for topic in self.topics}

    @property
    def is_complete(self):
        """Whether the primary has answered all of it, and no append joins any more."""
        return self.is_cut and self.unanswered == 0

    def enter(self, AreaMap map, uint32_t area, uint64_t start):
        """Have its intents in an area, whose first byte has this position."""
        global spare_count
        self.map, self.area, self.start, self.is_taken = map, area, start, True
        if spare_count > 0:
            spare_count -= 1
            self.blocks, self.cap = spares[spare_count], AREA_BYTES
        else:
            self.make_room(AREA_BYTES, 0, 0)

    def leave(self):
        """Release its area."""
        if self.map is not None:
            self.map.release(self.area)
            self.map = None

    def cut(self):
        """Let no append join any more."""
        if not self.is_cut:
            self.tap.cut()

    cdef bint has_room(self, size_t size, uint32_t count):
        return self.used + size <= AREA_BYTES - AREA_HEAD and (self.count == 0 or self.count + count <= MESSAGES_MAX)

    cdef int make_room(self, size_t size, uint32_t count, uint32_t runs) except -1:
        """Have room for so many bytes of blocks, messages and runs more."""
        cdef size_t cap
        if self.used + size > self.cap:
            cap = max(self.used + size, 2 * self.cap)
            self.blocks = <unsigned char*>realloc_or_raise(self.blocks, cap)
            self.cap = cap
        if self.count + count > self.entry_cap:
            cap = max(self.count + count, 2 * self.entry_cap)
            self.entries = <TappedEntry*>realloc_or_raise(self.entries, cap * sizeof(TappedEntry))
            self.entry_cap = <uint32_t>cap
        if self.run_count + runs > self.run_cap:
            cap = max(self.run_count + runs, 2 * self.run_cap)
            self.runs = <TappedRun*>realloc_or_raise(self.runs, cap * sizeof(TappedRun))
            self.run_cap = <uint32_t>cap
        return 0

    cdef uint32_t number_of(self, Destination destination) except? 0:
        """The topic's place in `topics`."""
        if destination.tap_batch != self.stamp:
            found = self.numbers.get(destination)
            if found is None:
                found = self.numbers[destination] = len(self.topics)
                self.topics.append(self.known.dual(destination))
            destination.tap_batch, destination.tap_topic = self.stamp, found
        return destination.tap_topic

    cdef int add(self, AppendRequest append, uint64_t position, int64_t now_ms) except -1:
        """Add the append's messages of the tap; all or none.

        Bounds: make_room has had the sum of the blocks' padded sizes, the messages and the runs, which `sending` takes from
        the same items. Items, arena and their links: see the invariants in _append_request.pxd.

        Args:
            position: of the first byte of `blocks`.
        """
        cdef unsigned char* out = self.blocks + self.used
        cdef const AppendItem* item
        cdef const AppendRun* run
        cdef TappedEntry* entry
        cdef uint32_t r, i, n = self.count, k = self.run_count, topic = 0
        cdef Destination destination, last = None
        cdef bytes name = None
        for r in range(append.run_count):
            run = &append.runs[r]
            if run.tap != <void*>self.tap:
                continue
            destination = <Destination>append.destinations[run.destination - 1]
            if destination is not last:
                topic, name, last = self.number_of(destination), destination.name, destination
            self.runs[k].topic, self.runs[k].count = topic, run.count
            k += 1
            i = run.head
            while i:
                item, entry = &append.items[i - 1], &self.entries[n]
                entry.at, entry.record_size = <uint32_t>(out - self.blocks), item.size - RECORD_SIZE_SIZE
                entry.record_at = entry.at + BLOCK_HEAD + ENTRY_HEAD + <uint32_t>len(name) + key_size(item)
                out = write_block(out, position + entry.at, now_ms, name, append.arena + item.at, item)
                n += 1
                i = item.next
        self.count, self.run_count, self.used = n, k, out - self.blocks
        self.unanswered += 1
        return 0

    def moved(self, uint64_t position, int64_t now_ms):
        """The blocks for this position of a segment, where they are from now on."""
        cdef unsigned char* block
        cdef uint32_t n, size, checksum
        cdef uint64_t at
        for n in range(self.count):
            block, at = self.blocks + self.entries[n].at, position + self.entries[n].at
            memcpy(&size, block + 4, 4)
            checksum = crc32c_extend(crc32c_extend(0, &at, 8), block + 4, size - 4)
            memcpy(block, &checksum, 4)
        self.base = position
        return memoryview(self)

    def marks(self, uint64_t base):
        """The marks of a segment at `base` that these intents need nothing more; see buffer/blocks.py."""
        cdef bytes made = PyBytes_FromStringAndSize(NULL, MARK_SIZE * self.count)
        cdef unsigned char* out = <unsigned char*>PyBytes_AS_STRING(made)
        cdef uint32_t n, offset, checksum
        cdef uint64_t position, first = self.base
        for n in range(self.count):
            position = first + self.entries[n].at
            offset, checksum = <uint32_t>(position - base), crc32c_extend(0, &position, 8)
            memcpy(out, &offset, 4)
            memcpy(out + 4, &checksum, 4)
            out += MARK_SIZE
        return made

    def positions(self):
        """The positions of the intents."""
        cdef uint32_t n
        cdef uint64_t first = self.base
        return [first + self.entries[n].at for n in range(self.count)]

    def stored_marks(self, uint64_t base):
        """The marks of a segment at `base` that the primary has these messages, and where; see journal/segment.py."""
        cdef bytes made = PyBytes_FromStringAndSize(NULL, STORED_MARK_SIZE * self.count)
        cdef unsigned char* out = <unsigned char*>PyBytes_AS_STRING(made)
        cdef uint32_t r, k, n = 0, offset, checksum
        cdef uint64_t position, first = self.base
        memset(out, 0, STORED_MARK_SIZE * self.count)
        for r in range(self.run_count):
            for k in range(self.runs[r].count):
                position = first + self.entries[n].at
                offset, checksum = <uint32_t>(position - base), crc32c_extend(crc32c_extend(0, &position, 8), &self.runs[r].queue, 4)
                memcpy(out, &offset, 4)
                memcpy(out + 4, &self.runs[r].queue, 4)
                memcpy(out + 8, &checksum, 4)
                out += STORED_MARK_SIZE
                n += 1
        return made

    def counts_of_keys(self):
        """(topic, count by slot of keys) of each topic. Call it for a complete batch only, and leave the result as it is."""
        cdef const unsigned char* entry
        cdef uint32_t r, k, n = 0, bytes_of_key
        cdef uint16_t name_size
        cdef int slot
        cdef list found = self.key_counts
        cdef dict counts
        if found is not None:
            return found
        found = [(topic.name, {}) for topic in self.topics]
        for r in range(self.run_count):
            counts = <dict>(<tuple>found[self.runs[r].topic])[1]
            for k in range(self.runs[r].count):
                entry = self.blocks + self.entries[n].at + BLOCK_HEAD
                memcpy(&name_size, entry + 2, 2)
                memcpy(&bytes_of_key, entry + 4, 4)
                slot = <int>(murmur2(entry + ENTRY_HEAD + name_size, bytes_of_key) & (SLOTS - 1)) if entry[1] else -1
                counts[slot] = counts.get(slot, 0) + 1
                n += 1
        self.key_counts = found
        return found

    def repairs(self, bint is_asked_for):
        """The argument of RepairBacklog.divert_batch: (topic, numbers of its entries, count by slot of its keys) of each topic.

        The primary must have stored all messages, and their intents must be in a segment.
        """
        cdef uint32_t r, k, n = 0
        cdef uint64_t position, first = self.base
        cdef list numbers, found = [(topic, [], counts) for topic, counts in self.counts_of_keys()]
        for r in range(self.run_count):
            numbers = <list>(<tuple>found[self.runs[r].topic])[1]
            for k in range(self.runs[r].count):
                position = first + self.entries[n].at
                if position < POSITION_MAX:
                    numbers.append((position << (QUEUE_BITS + 1)) | ((<uint64_t>self.runs[r].queue + 1) << 1) | is_asked_for)
                else:
                    numbers.append(packed(position, self.runs[r].queue, is_asked_for))
                n += 1
        return found

    def outcomes(self):
        """(topic, number of messages, code, queue, offset of the first one) of each run of messages."""
        cdef uint32_t r
        return [
            (self.topics[self.runs[r].topic].name, self.runs[r].count, self.runs[r].code, self.runs[r].queue, self.runs[r].offset)
            for r in range(self.run_count)
        ]

    def unpacked(self):
        """Intents, messages and outcomes, as the reference has them. Call it for a batch in a segment only."""
        cdef const unsigned char* raw = self.blocks
        cdef const unsigned char* record
        cdef const unsigned char* entry
        cdef uint32_t r, k, n = 0, size, head
        cdef uint16_t name_size
        cdef uint32_t bytes_of_key
        cdef TappedRun* run
        cdef uint64_t first = self.base
        cdef list intents = [], messages = [], outcomes = []
        for r in range(self.run_count):
            run = &self.runs[r]
            for k in range(run.count):
                entry, record = raw + self.entries[n].at + BLOCK_HEAD, raw + self.entries[n].record_at
                size, head = self.entries[n].record_size, 1 + (ASSIGNED_ID_SIZE if record[0] & RECORD_HAS_ID else 0)
                memcpy(&name_size, entry + 2, 2)
                memcpy(&bytes_of_key, entry + 4, 4)
                intents.append(first + self.entries[n].at)
                messages.append(MessageSlice(
                    self.topics[run.topic],
                    entry[ENTRY_HEAD + name_size:ENTRY_HEAD + name_size + bytes_of_key] if entry[1] else None,
                    record[1:head] if head > 1 else None,
                    record[head:size],
                ))
                outcomes.append((run.code, run.queue, run.offset + k if run.offset >= 0 else -1))
                n += 1
        return intents, messages, outcomes


cdef TappedBatch made_batch(object tap, TappedTopics known, int durability):
    """An empty batch of a tap."""
    global last_stamp
    cdef TappedBatch batch = TappedBatch()
    batch.tap, batch.known, batch.durability, batch.is_all_ok = tap, known, durability, True
    batch.topics, batch.numbers = [], {}
    last_stamp += 1
    batch.stamp = last_stamp
    return batch


cdef void* realloc_or_raise(void* old, size_t size) except NULL:
    cdef void* grown = realloc(old, size)
    if grown == NULL:
        raise MemoryError()
    return grown


cdef inline unsigned char* write_block(unsigned char* out, uint64_t position, int64_t accepted_at_ms, bytes name,
                                       const unsigned char* record, const AppendItem* item) noexcept:
    """Write the intent of one record with its padding at `out`; returns its end.

    The record's flags, assigned id and message have the same bytes in an append and in an entry.
    """
    cdef uint32_t bytes_of_key = key_size(item), encoded_size = item.size - RECORD_SIZE_SIZE
    cdef uint32_t size = BLOCK_HEAD + ENTRY_HEAD + <uint32_t>len(name) + bytes_of_key + encoded_size
    cdef const unsigned char* key = NULL
    cdef unsigned char* at
    if item.key_size != NO_KEY:
        # The message begins after the record's size, flags and assigned id.
        key = record + RECORD_SIZE_SIZE + 1 + (ASSIGNED_ID_SIZE if record[4] & RECORD_HAS_ID else 0) + item.key_at
    at = begin_block(out, size, accepted_at_ms, name, key, bytes_of_key)
    memcpy(at, record + RECORD_SIZE_SIZE, encoded_size)
    return end_block(out, position, size)
