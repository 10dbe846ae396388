# cython: language_level=3, boundscheck=False, wraparound=False
"""The dual writes of an engine's lanes: intents and copies of a whole append, without a Python object per message.

See docs/design/0039-dual-write-on-the-hot-path.md. The reference is the way of targets/dual.py, intents.py and
copying.py, which get each message as values; `TappedBatch.unpacked()` leads there whenever a batch is not a plain one.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from common.wire._walk cimport murmur2
from engine.client._append_request cimport NO_KEY, AppendItem, AppendRequest, AppendRun, AppendTap
from engine.client._destination cimport Destination
from engine.link.constants cimport ASSIGNED_ID_SIZE, CODE_OK, RECORD_HAS_ID

from producer_proxy.journal._block cimport BLOCK_HEAD, ENTRY_HEAD, begin_block, crc32c_extend, end_block, padded
from producer_proxy.journal.backlog import packed
from producer_proxy.targets.base import MessageSlice
from producer_proxy.targets.dual import DualDestination

cdef extern from "crc32c.h" nogil:
    void crc32c_setup()

cdef enum:
    MARK_SIZE = 8
    STORED_MARK_SIZE = 16
    SLOTS = 1024                      # as in buffer/ordering_keys.py
    RECORD_SIZE_SIZE = 4              # of an append's record, before its flags
    PRODUCE_HEAD = 12                 # as in engine/link/produce.py
    PRODUCE_MESSAGE = 16
    PRODUCE_RESULT = 16
    PRODUCE_HAS_ID = 1
    KNOWN_MAX = 1000                  # destinations; then all are found anew

crc32c_setup()


cdef class TappedBatch:
    """The messages of one append that have the same tap, as the journal's blocks, and their outcomes at the primary."""

    def __dealloc__(self):
        free(self.entries)
        free(self.runs)

    @property
    def size(self):
        return 0 if self.data is None else len(self.data)

    @property
    def names(self):
        return {topic.name for topic in self.topics}

    cdef int gather(self, AppendRequest append, DualTap tap) except -1:
        """Count the messages, and make room for their entries."""
        cdef AppendRun* run
        cdef uint32_t r, topic = 0
        cdef Destination destination, last = None
        cdef dict numbers = {}            # destination -> its place in `topics`
        self.topics, self.count, self.run_count = [], 0, 0
        self.runs = <TappedRun*>malloc((append.run_count + 1) * sizeof(TappedRun))
        self.entries = <TappedEntry*>malloc((append.item_count + 1) * sizeof(TappedEntry))
        if self.runs == NULL or self.entries == NULL:
            raise MemoryError()
        for r in range(append.run_count):
            run = &append.runs[r]
            if run.tap != <void*>tap:
                continue
            destination = <Destination>append.destinations[run.destination - 1]
            if destination is not last:
                found = numbers.get(destination)
                if found is None:
                    found = numbers[destination] = len(self.topics)
                    self.topics.append(tap.dual(destination))
                topic, last = found, destination
                self.durability = destination.durability
            self.runs[self.run_count].topic = topic
            self.runs[self.run_count].count = run.count
            self.run_count += 1
            self.count += run.count
        return 0

    cdef bytes encode(self, AppendRequest append, void* tap, uint64_t position, int64_t now_ms):
        """The blocks of all intents, for this position of the journal; keeps them.

        Bounds: `made` has the sum of the blocks' padded sizes, which the first loop takes from the same items as the
        second one. Items, arena and their links: see the invariants in _append_request.pxd.
        """
        cdef size_t size = 0
        cdef unsigned char* start
        cdef unsigned char* out
        cdef const AppendItem* item
        cdef const AppendRun* run
        cdef uint32_t r, i, n = 0, total
        cdef bytes name, made
        for r in range(append.run_count):
            run = &append.runs[r]
            if run.tap != tap:
                continue
            total = BLOCK_HEAD + ENTRY_HEAD + <uint32_t>len((<Destination>append.destinations[run.destination - 1]).name)
            i = run.head
            while i:
                item = &append.items[i - 1]
                size += padded(total + key_size(item) + item.size - RECORD_SIZE_SIZE)
                i = item.next
        made = PyBytes_FromStringAndSize(NULL, size)
        start = out = <unsigned char*>PyBytes_AS_STRING(made)
        for r in range(append.run_count):
            run = &append.runs[r]
            if run.tap != tap:
                continue
            name = (<Destination>append.destinations[run.destination - 1]).name
            i = run.head
            while i:
                item = &append.items[i - 1]
                self.entries[n].at = <uint32_t>(out - start)
                self.entries[n].record_size = item.size - RECORD_SIZE_SIZE
                out = write_block(out, position + self.entries[n].at, now_ms, name, append.arena + item.at, item)
                total = BLOCK_HEAD + ENTRY_HEAD + <uint32_t>len(name) + key_size(item)
                self.entries[n].record_at = self.entries[n].at + total
                n += 1
                i = item.next
        self.base, self.data = position, made
        return made

    cdef int settle(self, AppendRequest append, void* tap) except -1:
        """Keep the primary's outcomes."""
        cdef uint32_t r, n = 0
        cdef AppendRun* run
        self.is_all_ok = True
        for r in range(append.run_count):
            run = &append.runs[r]
            if run.tap == tap:
                self.runs[n].code, self.runs[n].queue, self.runs[n].offset = run.code, run.told_queue, run.told_offset
                self.is_all_ok = self.is_all_ok and run.code == CODE_OK
                n += 1
        return 0

    def marks(self, uint64_t base):
        """The marks of a segment at `base` that these intents need nothing more; see buffer/blocks.py."""
        cdef bytes made = PyBytes_FromStringAndSize(NULL, MARK_SIZE * self.count)
        cdef unsigned char* out = <unsigned char*>PyBytes_AS_STRING(made)
        cdef uint32_t n, offset, checksum
        cdef uint64_t position
        for n in range(self.count):
            position = self.base + self.entries[n].at
            offset, checksum = <uint32_t>(position - base), crc32c_extend(0, &position, 8)
            memcpy(out, &offset, 4)
            memcpy(out + 4, &checksum, 4)
            out += MARK_SIZE
        return made

    def positions(self):
        """The positions of the intents."""
        cdef uint32_t n
        return [self.base + self.entries[n].at for n in range(self.count)]

    def stored_marks(self, uint64_t base):
        """The marks of a segment at `base` that the primary has these messages, and where; see journal/segment.py."""
        cdef bytes made = PyBytes_FromStringAndSize(NULL, STORED_MARK_SIZE * self.count)
        cdef unsigned char* out = <unsigned char*>PyBytes_AS_STRING(made)
        cdef uint32_t r, k, n = 0, offset, checksum
        cdef uint64_t position
        memset(out, 0, STORED_MARK_SIZE * self.count)
        for r in range(self.run_count):
            for k in range(self.runs[r].count):
                position = self.base + self.entries[n].at
                offset, checksum = <uint32_t>(position - base), crc32c_extend(crc32c_extend(0, &position, 8), &self.runs[r].queue, 4)
                memcpy(out, &offset, 4)
                memcpy(out + 4, &self.runs[r].queue, 4)
                memcpy(out + 8, &checksum, 4)
                out += STORED_MARK_SIZE
                n += 1
        return made

    def repairs(self, bint is_asked_for):
        """What a RepairBacklog needs of a batch that is all OK: (topic, numbers of the entries, count by slot of keys) per run."""
        cdef const unsigned char* raw = <const unsigned char*>PyBytes_AS_STRING(self.data)
        cdef const unsigned char* entry
        cdef uint32_t r, k, n = 0, bytes_of_key
        cdef uint16_t name_size
        cdef int slot
        cdef list found = [], numbers
        cdef dict counts
        for r in range(self.run_count):
            numbers, counts = [], {}
            for k in range(self.runs[r].count):
                entry = raw + self.entries[n].at + BLOCK_HEAD
                memcpy(&name_size, entry + 2, 2)
                memcpy(&bytes_of_key, entry + 4, 4)
                slot = <int>(murmur2(entry + ENTRY_HEAD + name_size, bytes_of_key) & (SLOTS - 1)) if entry[1] else -1
                counts[slot] = counts.get(slot, 0) + 1
                numbers.append(packed(self.base + self.entries[n].at, self.runs[r].queue, is_asked_for))
                n += 1
            found.append((self.topics[self.runs[r].topic].name, numbers, counts))
        return found

    def outcomes(self):
        """(topic, number of messages, code, queue, offset of the first one) of each run of messages."""
        cdef uint32_t r
        return [
            (self.topics[self.runs[r].topic].name, self.runs[r].count, self.runs[r].code, self.runs[r].queue, self.runs[r].offset)
            for r in range(self.run_count)
        ]

    def unpacked(self):
        """Intents, messages and outcomes, as the reference has them. Call it for a batch in the journal only."""
        cdef const unsigned char* raw = <const unsigned char*>PyBytes_AS_STRING(self.data)
        cdef const unsigned char* record
        cdef const unsigned char* entry
        cdef uint32_t r, k, n = 0, size, head
        cdef uint16_t name_size
        cdef uint32_t bytes_of_key
        cdef TappedRun* run
        cdef list intents = [], messages = [], outcomes = []
        for r in range(self.run_count):
            run = &self.runs[r]
            for k in range(run.count):
                entry, record = raw + self.entries[n].at + BLOCK_HEAD, raw + self.entries[n].record_at
                size, head = self.entries[n].record_size, 1 + (ASSIGNED_ID_SIZE if record[0] & RECORD_HAS_ID else 0)
                memcpy(&name_size, entry + 2, 2)
                memcpy(&bytes_of_key, entry + 4, 4)
                intents.append(self.base + self.entries[n].at)
                messages.append(MessageSlice(
                    self.topics[run.topic],
                    entry[ENTRY_HEAD + name_size:ENTRY_HEAD + name_size + bytes_of_key] if entry[1] else None,
                    record[1:head] if head > 1 else None,
                    record[head:size],
                ))
                outcomes.append((run.code, run.queue, run.offset + k if run.offset >= 0 else -1))
                n += 1
        return intents, messages, outcomes


cdef class DualTap(AppendTap):
    """The tap of one pair of sides.

    Args:
        write: called as (encode, count) before an append is sent: RepairJournal.write, or what returns False as it does.
        on_answered: called as (batch) with the primary's outcomes.
        on_fault: called in the handler of an exception: messages may have no intent, or no copy.
    """

    def __init__(self, write, on_answered, on_fault):
        self.write, self.on_answered, self.on_fault = write, on_answered, on_fault
        self.open, self.known = set(), {}

    cdef object dual(self, Destination destination):
        """The DualDestination of a topic; kept, since each append asks for it. Its grade is that of the topic's first append."""
        found = self.known.get(destination)
        if found is None:
            if len(self.known) >= KNOWN_MAX:
                self.known.clear()
            found = self.known[destination] = DualDestination(
                (<bytes>destination.name).decode("ascii"), destination.queues, destination.durability, destination.grade,
                destination.id_window_ms, destination,
            )
        return found

    cdef object sending(self, AppendRequest append):
        cdef TappedBatch batch = TappedBatch()
        try:
            batch.gather(append, self)
            self.append, self.batch = append, batch
            if not self.write(self.encode, batch.count):
                batch.data = None
            self.open.add(batch)
        except Exception:
            self.on_fault()
            return None
        finally:
            self.append = self.batch = None
        return batch

    def encode(self, uint64_t position, int64_t now_ms):
        """The blocks of the append that is being told."""
        return self.batch.encode(self.append, <void*>self, position, now_ms)

    cdef int answered(self, AppendRequest append, object state) except -1:
        cdef TappedBatch batch = state
        if batch is None:
            return 0
        try:
            self.open.discard(batch)
            batch.settle(append, <void*>self)
            self.on_answered(batch)
        except Exception:
            self.on_fault()
        return 0


def encode_produce_of(list batches, str cluster, int patience_ms):
    """PRODUCE of all messages of these batches, each bound to the queue of its outcome; see engine/link/produce.py.

    Bounds: `made` has room for all records, whose sizes are those of the entries.
    """
    cdef TappedBatch batch
    cdef TappedRun* run
    cdef TappedEntry* entry
    cdef const unsigned char* raw
    cdef dict numbers = {}
    cdef list names = [cluster.encode()]
    cdef bytes name, made
    cdef size_t size = PRODUCE_HEAD
    cdef uint32_t count = 0, r, k, n, topic, message_size, patience = patience_ms
    cdef int32_t partition
    cdef uint16_t topic_count, name_size
    cdef unsigned char* out
    for batch in batches:
        count += batch.count
        for destination in batch.topics:
            if destination.name not in numbers:
                numbers[destination.name] = len(numbers)
                names.append(destination.name.encode())
        for n in range(batch.count):
            size += PRODUCE_MESSAGE + batch.entries[n].record_size - 1
    for name in names:
        size += 2 + len(name)
    made = PyBytes_FromStringAndSize(NULL, size)
    out = <unsigned char*>PyBytes_AS_STRING(made)
    topic_count = <uint16_t>len(numbers)
    memset(out, 0, PRODUCE_HEAD)
    memcpy(out, &patience, 4)
    memcpy(out + 4, &count, 4)
    memcpy(out + 8, &topic_count, 2)
    out += PRODUCE_HEAD
    for name in names:
        name_size = <uint16_t>len(name)
        memcpy(out, &name_size, 2)
        memcpy(out + 2, PyBytes_AS_STRING(name), name_size)
        out += 2 + name_size
    for batch in batches:
        raw, n = <const unsigned char*>PyBytes_AS_STRING(batch.data), 0
        for r in range(batch.run_count):
            run = &batch.runs[r]
            topic, partition = numbers[batch.topics[run.topic].name], <int32_t>run.queue
            for k in range(run.count):
                entry = &batch.entries[n]
                n += 1
                memset(out, 0, PRODUCE_MESSAGE)
                out[12] = PRODUCE_HAS_ID if raw[entry.record_at] & RECORD_HAS_ID else 0
                message_size = entry.record_size - 1 - (ASSIGNED_ID_SIZE if out[12] else 0)
                memcpy(out, &topic, 4)
                memcpy(out + 4, &partition, 4)
                memcpy(out + 8, &message_size, 4)
                memcpy(out + PRODUCE_MESSAGE, raw + entry.record_at + 1, entry.record_size - 1)
                out += PRODUCE_MESSAGE + entry.record_size - 1
    return made


def all_stored(bytes payload, uint32_t count):
    """Whether an answer to a PRODUCE of `count` messages says OK to each."""
    cdef const unsigned char* raw = <const unsigned char*>PyBytes_AS_STRING(payload)
    cdef uint32_t n
    if <size_t>len(payload) != <size_t>PRODUCE_RESULT * count:
        return False
    for n in range(count):
        if raw[PRODUCE_RESULT * n] or raw[PRODUCE_RESULT * n + 1]:
            return False
    return True


cdef inline uint32_t key_size(const AppendItem* item) noexcept:
    return 0 if item.key_size == NO_KEY else item.key_size


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
