# cython: language_level=3
"""The one writer: checks batches, gives them offsets, patches and checksums their headers, and writes them with one call.

Twin: append_pure.py. The work of an append is a copy into the staging area (large bodies are written from the caller's bytes), two hash
probes and a checksum; `flush` is one pwritev. Index entries are made when a batch is staged and become visible when `end_position` passes
them, so a reader in between sees nothing, and a refused write takes them back.
"""
from libc.errno cimport EAGAIN, EDQUOT, EINTR, ENOSPC, errno
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset, strerror

from cpython.bytes cimport PyBytes_FromStringAndSize

from engine.log.segment._ids cimport Hash, IdEntry, expiry_s
from engine.log.segment._index cimport BatchHeader, QueueSlot, crc32c_extend, hash_of, key_of

from engine.errors import ClosedError, DiskFullError, PartlyWrittenError

cdef extern from "sys/uio.h" nogil:
    ssize_t pwritev(int fd, const iovec* parts, int count, long offset)

cdef enum:
    MAGIC = 0x5042
    HEADER_SIZE = 48
    STAGING_SIZE = 1 << 20
    DIRECT_MIN = 32768           # bodies from here on are written from where they lie
    PART_MAX = 64
    TRAILER_SIZE = 40
    FLAG_CHECK_IDS = 1
    CODE_DUPLICATE = 2
    CODE_INVALID = 100
    CODE_TOO_LARGE = 101
    CODE_UNKNOWN_TOPIC = 102
    CODE_NO_ROOM = 203

cdef uint32_t NO_SUCH_TOPIC = 0xFFFFFFFF


cdef class Appender:
    """Owns the end of the log.

    Args:
        ids: window of ids that batches with the flag "check ids" are checked against.
        offsets: `load(topic_id, queue)` returns the next offset of a queue that no index in `offsets.older` knows.
        topics: `load_queue_count(topic_id)` returns 0 when there is no such topic.
        roller: `roll(appender)` calls `set_segment` and returns True, or returns False when the disk has no room.
    """

    def __cinit__(self, env, bytes log_id, uint32_t epoch, IdWindow ids not None, offsets, topics, roller):
        self.env, self.offsets, self.topics, self.roller = env, offsets, topics, roller
        self.refusal = ""
        self.epoch = epoch
        self.ids = ids
        self.seed = crc32c_extend(0, <const char*>log_id, len(log_id))
        self.older = offsets.older
        self.fd = -1
        self.staging = <uint8_t*>malloc(STAGING_SIZE)
        self.parts = <iovec*>malloc(PART_MAX * sizeof(iovec))
        self.watch_mask = 63
        self.watches = <uint64_t*>calloc(self.watch_mask + 1, sizeof(uint64_t))
        if self.staging == NULL or self.parts == NULL or self.watches == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.staging)
        free(self.parts)
        free(self.watches)
        free(self.woken)
        free(self.undo)
        free(self.topic_queues)

    def set_segment(self, file, SegmentIndex index, uint64_t segment_end, uint64_t position, uint64_t last_at):
        """Go on in this segment at `position`; its last batch lies at byte address `last_at` (0: none). Nothing may be staged."""
        assert self.part_count == 0 and self.staged == 0
        self.file = file
        self.fd = file.fileno()
        self.index = index
        self.segment_base = index.base
        self.segment_end = segment_end
        self.stage_position = position
        self.end_position = position
        self.last_at = self.staged_last_at = last_at

    def set_topic(self, uint32_t topic_id, uint32_t queues):
        """The topic exists with so many queues."""
        cdef size_t room = <size_t>topic_id + 1
        cdef uint32_t* grown
        if topic_id >= self.topic_room:
            if room < self.topic_room * 2:
                room = self.topic_room * 2
            if room < 1024:
                room = 1024
            # Fresh zero pages cost nothing until a topic in them is touched, so a million cold topics stay out of memory.
            grown = <uint32_t*>calloc(room, sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError()
            if self.topic_room:
                memcpy(grown, self.topic_queues, self.topic_room * sizeof(uint32_t))
            free(self.topic_queues)
            self.topic_queues = grown
            self.topic_room = room
        self.topic_queues[topic_id] = queues

    cdef int queues_of(self, uint32_t topic_id, uint32_t* queues) except -1:
        if topic_id < self.topic_room and self.topic_queues[topic_id]:
            queues[0] = self.topic_queues[topic_id]
        else:
            queues[0] = self.topics.load_queue_count(topic_id) or NO_SUCH_TOPIC
            if queues[0] != NO_SUCH_TOPIC:
                self.set_topic(topic_id, queues[0])
        return 0

    def queue_count(self, uint32_t topic_id):
        """How many queues the topic has; 0 when there is no such topic."""
        cdef uint32_t queues = 0
        self.queues_of(topic_id, &queues)
        return 0 if queues == NO_SUCH_TOPIC else queues

    def next_offset(self, uint32_t topic_id, uint32_t queue):
        """Offset of the queue's next record, when the segment being written holds none of it."""
        return self.counter(key_of(topic_id, queue))

    cdef uint64_t counter(self, uint64_t key) except? 0xFFFFFFFFFFFFFFFF:
        """The queue's next offset when the active segment has not seen it yet."""
        cdef SegmentIndex index
        cdef QueueSlot* slot
        for index in self.older:
            slot = index.find(key)
            if slot != NULL:
                return slot.next_offset
        return self.offsets.load(<uint32_t>(key >> 32), <uint32_t>key)

    cdef int check_batch(self, const unsigned char* batch, size_t size, bint trusted) except -1:
        cdef BatchHeader* header = <BatchHeader*>batch
        cdef uint32_t queues = 0
        cdef uint32_t left = header.size - HEADER_SIZE
        cdef uint32_t count = 0
        cdef uint32_t record
        cdef const unsigned char* at = batch + HEADER_SIZE
        if header.magic != MAGIC or header.flags & ~FLAG_CHECK_IDS or header.count == 0:
            return CODE_INVALID
        # Such a batch, of kind MESSAGES or FIRED, says how long its id is remembered, and no other says anything there.
        if (header.count != 1 or header.kind not in (0, 10) or not header.reserved) if header.flags else header.reserved:
            return CODE_INVALID
        while left:
            if left < 6:
                return CODE_INVALID
            record = (<const uint32_t*>at)[0]
            # At least a flags byte and a struct's stop byte, behind the id when there is one. With a trailer it is alone in its batch.
            if record > left - 4 or at[4] > 3 or record < 2 + 16 * (at[4] & 1) + TRAILER_SIZE * (at[4] >> 1):
                return CODE_INVALID
            if at[4] & 2 and header.count != 1:
                return CODE_INVALID
            at += 4 + record
            left -= 4 + record
            count += 1
        if count != header.count:
            return CODE_INVALID
        if trusted:
            return 0
        if header.kind:
            return CODE_INVALID
        self.queues_of(header.topic_id, &queues)
        if queues == NO_SUCH_TOPIC:
            return CODE_UNKNOWN_TOPIC
        return 0 if header.queue < queues else CODE_INVALID

    cdef int stage_batch(self, const unsigned char* batch, size_t size, bint trusted, int64_t now_ms, unsigned char* result) except -1:
        """Take one batch, whose size field is already known to lie within the frame. Returns its code; fills in what else the result says."""
        cdef BatchHeader* header = <BatchHeader*>batch
        cdef BatchHeader* staged
        cdef uint64_t padded = (<uint64_t>header.size + 7) & ~<uint64_t>7
        cdef bint direct = header.size >= DIRECT_MIN
        cdef size_t copied = HEADER_SIZE if direct else padded
        cdef uint32_t crc
        cdef QueueSlot* slot
        cdef Hash hash
        cdef IdEntry* first
        cdef uint64_t key
        cdef uint32_t now_s = <uint32_t>(now_ms // 1000)
        cdef uint64_t* base_offset = <uint64_t*>(result + 8)
        cdef int code = self.check_batch(batch, size, trusted)
        if code:
            return code
        if header.flags:
            if not self.ids.hash_record(header.topic_id, batch + HEADER_SIZE, &hash):
                return CODE_INVALID
            first = self.ids.find(&hash, now_s)
            if first != NULL:
                self.ids.hits += 1
                (<uint32_t*>(result + 4))[0], base_offset[0] = first.queue, first.offset
                return CODE_DUPLICATE
        if padded > self.segment_end - self.segment_base - 64:
            return CODE_TOO_LARGE
        if self.stage_position + padded > self.segment_end:
            self.flush()
            if not self.roller.roll(self):
                return CODE_NO_ROOM
            if padded > self.segment_end - self.segment_base - 64:
                return CODE_TOO_LARGE
        if self.staged + copied + 8 > STAGING_SIZE or self.part_count + 3 > PART_MAX:
            self.flush()
        key = key_of(header.topic_id, header.queue)
        slot = self.index.find(key)
        if slot == NULL:
            base_offset[0] = self.counter(key)
            slot = self.index.claim(key)
            slot.next_offset = base_offset[0]
        base_offset[0] = slot.next_offset
        self.remember(key)
        staged = <BatchHeader*>(self.staging + self.staged)
        memcpy(staged, batch, HEADER_SIZE if direct else header.size)
        staged.epoch = self.epoch
        staged.base_offset = base_offset[0]
        staged.stored_at_ms = now_ms
        crc = crc32c_extend(self.seed, &self.stage_position, 8)
        if direct:
            crc = crc32c_extend(crc, <uint8_t*>staged + 4, HEADER_SIZE - 4)
            crc = crc32c_extend(crc, batch + HEADER_SIZE, header.size - HEADER_SIZE)
            self.add_part(staged, HEADER_SIZE)
            self.staged += HEADER_SIZE
            self.add_part(batch + HEADER_SIZE, header.size - HEADER_SIZE)
            if padded > header.size:
                memset(self.staging + self.staged, 0, 8)
                self.add_part(self.staging + self.staged, padded - header.size)
                self.staged += 8
        else:
            memset(<uint8_t*>staged + header.size, 0, padded - header.size)
            crc = crc32c_extend(crc, <uint8_t*>staged + 4, header.size - 4)
            self.add_part(staged, padded)
            self.staged += padded
        staged.crc = crc
        self.index.add(slot, base_offset[0], <uint32_t>(self.stage_position - self.segment_base), header.size, header.count, now_ms)
        if header.flags:
            self.index.checked += 1
            self.ids.add(&hash, base_offset[0], header.queue, expiry_s(now_ms, header.reserved), now_s)
        self.staged_last_at = self.stage_position - self.segment_base
        self.stage_position += padded
        if self.watch_count and self.disarm(key):
            self.wake(key)
        return 0

    cdef int add_part(self, const void* data, size_t size) except -1:
        cdef iovec* last
        if self.part_count:
            last = &self.parts[self.part_count - 1]
            if <const uint8_t*>last.iov_base + last.iov_len == <const uint8_t*>data:
                last.iov_len += size
                return 0
        self.parts[self.part_count].iov_base = <void*>data
        self.parts[self.part_count].iov_len = size
        self.part_count += 1
        return 0

    cdef int stage_frame(self, const unsigned char* batches, size_t size, uint32_t count, int64_t now_ms, unsigned char* results) except -1:
        if not self.owes:
            self.part_written = False
        self.owes = True
        return self.stage(batches, size, count, now_ms, results, False)

    cdef int stage(self, const unsigned char* batches, size_t size, uint32_t count, int64_t now_ms, unsigned char* results,
                   bint trusted) except -1:
        cdef size_t at = 0
        cdef uint32_t i, batch_size
        cdef int code
        cdef int accepted = 0
        cdef bint direct = False
        if self.refuses:
            self.check_refusal(trusted)
        self.client_batches += 0 if trusted else count
        memset(results, 0, 16 * <size_t>count)
        for i in range(count):
            batch_size = (<BatchHeader*>(batches + at)).size if size >= HEADER_SIZE and at <= size - HEADER_SIZE else 0
            if batch_size < HEADER_SIZE or batch_size > size - at:
                # Its end is unknown, so is the start of every batch behind it.
                for i in range(i, count):
                    (<uint16_t*>(results + 16 * i))[0] = CODE_INVALID
                break
            code = self.stage_batch(batches + at, batch_size, trusted, now_ms, results + 16 * i)
            (<uint16_t*>(results + 16 * i))[0] = code
            if code == 0:
                accepted += 1
                if batch_size >= DIRECT_MIN:
                    direct = True
            at += (<size_t>batch_size + 7) & ~<size_t>7
        if direct:
            self.flush()         # the caller's bytes live only during the call
        return accepted

    cdef int append_frame(self, const unsigned char* batches, size_t size, uint32_t count, int64_t now_ms, unsigned char* results) except -1:
        cdef int accepted
        if not self.owes:
            self.part_written = False
        accepted = self.stage(batches, size, count, now_ms, results, False)
        self.flush()
        return accepted

    cdef int commit(self) except -1:
        self.owes = False
        self.flush()
        self.part_written = False
        if self.lost:
            self.lost = False
            raise PartlyWrittenError(f"{self.file.path}: an earlier write of this turn was refused")
        return 0

    cdef int flush(self) except -1:
        """Write what is staged. On return it is in the page cache and readable."""
        cdef int error = 0
        if self.part_count == 0:
            return 0
        self.write_parts(&error)
        if error == 0:
            self.part_count = 0
            self.staged = 0
            self.undo_count = 0
            self.ids.commit()
            self.end_position = self.stage_position
            self.last_at = self.staged_last_at
            self.woken_ready = self.woken_count
            self.part_written = True
            return 0
        self.roll_back()
        if error in (ENOSPC, EDQUOT):
            kind = PartlyWrittenError if self.part_written else DiskFullError
            self.part_written = False
            # Somebody else's write of this turn met the full disk; whoever staged before it hears of it at the commit.
            self.lost = self.owes
            raise kind(f"{self.file.path}: {strerror(error).decode()}")
        self.env.die(f"{self.file.path}: write at {self.end_position} failed: {strerror(error).decode()}")
        return -1

    cdef int write_parts(self, int* error) except -1:
        """All parts, or none with `error` set. A write that fails half-way ends the process, since the log's end is unknown then."""
        cdef int first = 0
        cdef ssize_t taken
        cdef uint64_t at = self.end_position - self.segment_base
        while first < self.part_count:
            if self.fd >= 0:
                taken = pwritev(self.fd, self.parts + first, self.part_count - first, at)
                if taken < 0:
                    error[0] = errno
            else:
                taken = self.write_by_object(first, at, error)
            if taken < 0:
                if error[0] in (EINTR, EAGAIN):
                    error[0] = 0
                    continue
                if at != self.end_position - self.segment_base:
                    self.env.die(f"{self.file.path}: write at {self.segment_base + at} failed half-way: {strerror(error[0]).decode()}")
                return 0
            at += taken
            while taken and first < self.part_count:
                if <size_t>taken >= self.parts[first].iov_len:
                    taken -= self.parts[first].iov_len
                    first += 1
                else:
                    self.parts[first].iov_base = <uint8_t*>self.parts[first].iov_base + taken
                    self.parts[first].iov_len -= taken
                    taken = 0
        return 0

    cdef ssize_t write_by_object(self, int first, uint64_t at, int* error) except? -2:
        cdef int i
        data = b"".join([
            PyBytes_FromStringAndSize(<const char*>self.parts[i].iov_base, self.parts[i].iov_len) for i in range(first, self.part_count)
        ])
        try:
            return self.file.write_at(data, at)
        except OSError as refused:
            error[0] = refused.errno
            return -1

    cdef int remember(self, uint64_t key) except -1:
        cdef uint64_t* grown
        if self.undo_count == self.undo_room:
            grown = <uint64_t*>realloc(self.undo, (self.undo_room * 2 + 64) * sizeof(uint64_t))
            if grown == NULL:
                raise MemoryError()
            self.undo = grown
            self.undo_room = self.undo_room * 2 + 64
        self.undo[self.undo_count] = key
        self.undo_count += 1
        return 0

    cdef int roll_back(self) except -1:
        while self.undo_count:
            self.undo_count -= 1
            self.index.take_back(self.undo[self.undo_count])
        self.ids.take_back()
        self.stage_position = self.end_position
        self.staged_last_at = self.last_at
        self.part_count = 0
        self.staged = 0
        self.woken_ready = self.woken_count
        return 0

    cdef bint disarm(self, uint64_t key) noexcept:
        """Remove the key from the watches; whether it was there. Moves later keys of the cluster up, so that no tombstone stays."""
        cdef size_t at = hash_of(key) & self.watch_mask
        cdef size_t hole, home
        while self.watches[at] != key:
            if self.watches[at] == 0:
                return False
            at = (at + 1) & self.watch_mask
        hole = at
        while True:
            at = (at + 1) & self.watch_mask
            if self.watches[at] == 0:
                break
            home = hash_of(self.watches[at]) & self.watch_mask
            if ((at - home) & self.watch_mask) >= ((at - hole) & self.watch_mask):
                self.watches[hole] = self.watches[at]
                hole = at
        self.watches[hole] = 0
        self.watch_count -= 1
        return True

    cdef int wake(self, uint64_t key) except -1:
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

    def watch(self, uint32_t topic_id, uint32_t queue):
        """Arm the queue."""
        cdef uint64_t key = key_of(topic_id, queue)
        cdef uint64_t* old
        cdef size_t at, i, mask
        if (self.watch_count + 1) * 2 > self.watch_mask + 1:
            old = self.watches
            mask = self.watch_mask
            self.watches = <uint64_t*>calloc((mask + 1) * 2, sizeof(uint64_t))
            if self.watches == NULL:
                self.watches = old
                raise MemoryError()
            self.watch_mask = mask * 2 + 1
            for i in range(mask + 1):
                if old[i]:
                    at = hash_of(old[i]) & self.watch_mask
                    while self.watches[at]:
                        at = (at + 1) & self.watch_mask
                    self.watches[at] = old[i]
            free(old)
        at = hash_of(key) & self.watch_mask
        while self.watches[at]:
            if self.watches[at] == key:
                return
            at = (at + 1) & self.watch_mask
        self.watches[at] = key
        self.watch_count += 1

    def unwatch(self, uint32_t topic_id, uint32_t queue):
        """Disarm the queue; one that was not armed is no error."""
        self.disarm(key_of(topic_id, queue))

    def take_woken(self):
        """[(topic id, queue)] of armed queues whose records have become readable."""
        cdef size_t i
        if self.woken_ready == 0:
            return []
        found = [(<uint32_t>(self.woken[i] >> 32), <uint32_t>self.woken[i]) for i in range(self.woken_ready)]
        for i in range(self.woken_ready, self.woken_count):
            self.woken[i - self.woken_ready] = self.woken[i]
        self.woken_count -= self.woken_ready
        self.woken_ready = 0
        return found

    def append(self, const uint8_t[::1] batches not None, uint32_t count, int64_t now_ms, bint trusted=False, bint staged=False):
        """Append and return [(code, base offset)]. `trusted` takes control batches too; `staged` leaves the write to commit_staged()."""
        cdef bytes results = self.append_results(batches, count, now_ms, trusted, staged)
        cdef const unsigned char* out = results
        cdef uint32_t i
        return [((<uint16_t*>(out + 16 * i))[0], (<uint64_t*>(out + 16 * i + 8))[0]) for i in range(count)]

    def append_results(self, const uint8_t[::1] batches not None, uint32_t count, int64_t now_ms, bint trusted=False, bint staged=False):
        """The same, with the results as the link carries them: format.APPENDED for each batch."""
        cdef bytes results = PyBytes_FromStringAndSize(NULL, 16 * <size_t>count)
        cdef unsigned char* out = <unsigned char*><char*>results
        cdef const unsigned char* start = &batches[0] if batches.shape[0] else NULL
        if not self.owes:
            self.part_written = False
        self.owes = self.owes or staged
        self.stage(start, batches.shape[0], count, now_ms, out, trusted)
        if not staged:
            self.flush()
        return results

    def set_refusal(self, str sentence not None, bint is_closed):
        """Answer untrusted appends with DiskFullError and the sentence, if there is one; all with ClosedError if closed."""
        self.refusal, self.is_closed = sentence, is_closed
        self.refuses = is_closed or len(sentence) > 0

    cdef int check_refusal(self, bint trusted) except -1:
        if self.is_closed:
            raise ClosedError("the log is closed")
        if not trusted:
            raise DiskFullError(self.refusal)
        return 0

    def commit_staged(self):
        """Python's way to commit()."""
        self.commit()
