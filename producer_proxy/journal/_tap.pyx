# cython: language_level=3, boundscheck=False, wraparound=False
"""The dual writes of an engine's lanes: intents before an append is sent, copies once it is answered.

See docs/design/0039-dual-write-on-the-hot-path.md. The reference is the way of targets/dual.py and copying.py, which get each
message as values.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from engine.client._append_request cimport AppendItem, AppendRequest, AppendRun, AppendTap
from engine.client._destination cimport Destination
from engine.link.constants cimport CODE_OK

from producer_proxy.journal._block cimport BLOCK_HEAD, ENTRY_HEAD, padded
from producer_proxy.journal._area_map cimport AREA_BYTES, AREA_HEAD
from producer_proxy.journal._tapped_batch cimport RECORD_SIZE_SIZE, TappedBatch, TappedRun, TappedTopics, key_size, made_batch

cdef enum:
    NS_PER_S = 1_000_000_000
    NS_PER_MS = 1_000_000


cdef class TappedAppend:
    """The part of a batch that one append is."""


cdef class DualTap(AppendTap):
    """The tap of one pair of sides.

    Args:
        journal: a RepairJournal.
        unanswered: UnansweredBatches, which learns of the batches.
    """

    def __init__(self, journal, unanswered):
        self.journal, self.unanswered = journal, unanswered
        self.topics = TappedTopics()

    cdef object sending(self, AppendRequest append):
        cdef TappedAppend told
        cdef TappedBatch batch
        cdef const AppendItem* item
        cdef const AppendRun* run
        cdef Destination destination
        cdef uint32_t r, i, total, count = 0, runs = 0
        cdef size_t size = 0, used
        cdef int durability = 0
        try:
            for r in range(append.run_count):
                run = &append.runs[r]
                if run.tap != <void*>self:
                    continue
                destination = <Destination>append.destinations[run.destination - 1]
                total, durability = BLOCK_HEAD + ENTRY_HEAD + <uint32_t>len(destination.name), destination.durability
                i = run.head
                while i:
                    item = &append.items[i - 1]
                    size += padded(total + key_size(item) + item.size - RECORD_SIZE_SIZE)
                    i = item.next
                count += run.count
                runs += 1
            told = TappedAppend()
            batch = self.batch_for(size, count, durability)
            if batch is None:
                told.batch = self.written(append, size, count, runs, durability)
                return told
            batch.make_room(size, count, runs)
            told.batch, told.first_run, used = batch, batch.run_count, batch.used
            batch.add(append, batch.start + AREA_HEAD, self.now_ms())
            if not batch.map.put(batch.area, AREA_HEAD + used, batch.blocks + used, size):
                batch.cut()
                batch.is_taken = self.journal.keep(batch)
            return told
        except Exception:
            self.unanswered.failed()
            return None

    cdef TappedBatch batch_for(self, size_t size, uint32_t count, int durability):
        """The batch that an append of so many bytes of blocks joins; None: there is no area for it."""
        cdef TappedBatch batch = self.batch
        if batch is not None:
            if batch.durability == durability and batch.has_room(size, count):
                return batch
            self.cut()
        if size > AREA_BYTES - AREA_HEAD:
            return None
        batch = made_batch(self, self.topics, durability)
        if not self.journal.begin(batch):
            return None
        self.batch = batch
        self.unanswered.opened(batch)
        return batch

    cdef TappedBatch written(self, AppendRequest append, size_t size, uint32_t count, uint32_t runs, int durability):
        """A batch of this append, whose intents are in a segment, if the journal takes them."""
        cdef TappedBatch batch = made_batch(self, self.topics, durability)
        batch.is_cut = True
        batch.make_room(size, count, runs)
        self.writing, self.append = batch, append
        try:
            batch.is_taken = self.journal.write(self.encode, count)
        finally:
            self.writing = self.append = None
        if not batch.is_taken:
            batch.base = None
            if batch.count == 0:
                batch.add(append, 0, 0)
        self.unanswered.opened(batch)
        return batch

    def encode(self, uint64_t position, int64_t now_ms):
        """The blocks of the batch that is being written."""
        self.writing.add(self.append, position, now_ms)
        self.writing.base = position
        return memoryview(self.writing)

    cdef int64_t now_ms(self) except? -1:
        """The journal's time, which is asked once per second; between, that of the monotonic clock is added."""
        cdef timespec now
        cdef int64_t now_ns
        clock_gettime(CLOCK_MONOTONIC, &now)
        now_ns = now.tv_sec * NS_PER_S + now.tv_nsec
        if self.told_ms == 0 or now_ns - self.told_at_ns > NS_PER_S:
            self.told_ms, self.told_at_ns = self.journal.now_ms(), now_ns
        return self.told_ms + (now_ns - self.told_at_ns) // NS_PER_MS

    def cut(self):
        """Let the next append begin a new batch."""
        cdef TappedBatch batch = self.batch
        if batch is not None:
            self.batch, batch.is_cut = None, True
            if batch.unanswered == 0:
                self.unanswered.completed()

    cdef int answered(self, AppendRequest append, object state) except -1:
        cdef TappedAppend told = state
        cdef TappedBatch batch
        cdef AppendRun* run
        cdef TappedRun* kept
        cdef uint32_t r
        if told is None:
            return 0
        try:
            batch = told.batch
            kept = batch.runs + told.first_run
            for r in range(append.run_count):
                run = &append.runs[r]
                if run.tap == <void*>self:
                    kept.code, kept.queue, kept.offset = run.code, run.told_queue, run.told_offset
                    batch.is_all_ok = batch.is_all_ok and run.code == CODE_OK
                    kept += 1
            batch.unanswered -= 1
            if batch.is_cut and batch.unanswered == 0:
                self.unanswered.completed()
        except Exception:
            self.unanswered.failed()
        return 0
