# cython: language_level=3
"""The appender: checks batches, gives them offsets, completes and checksums their headers, and writes them by one call.

Reference: append.py. The work of an append is a copy into the staging area (large bodies are written from the caller's
bytes), two hash probes and a checksum; `flush` is one pwritev. Index entries are made when a batch is staged and become
visible when `end_position` passes them, so a reader in between sees nothing, and a refused write takes them back.

Beside it: _check.pxd (what makes a batch valid), _known_queues.pyx (queues by topic, next offsets), _watches.pxd
(armed and woken queues).
"""
from libc.errno cimport EAGAIN, EDQUOT, EINTR, ENOSPC, errno
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset, strerror

from cpython.bytes cimport PyBytes_FromStringAndSize

from engine.link.constants cimport (
    APPEND_RESULT_SIZE, BATCH_CHECK_IDS, BATCH_HEADER_SIZE, CLAIM_QUEUE, CODE_CLAIMED, CODE_DUPLICATE, CODE_INVALID, CODE_TOO_LARGE,
    CODE_DISK_FULL, CODE_UNKNOWN_TOPIC, KIND_MESSAGES, SEGMENT_HEADER_SIZE,
)
from engine.log.segment._ids cimport Hash, IdEntry, expiry_s
from engine.log.segment._index cimport BatchHeader, QueueSlot, crc32c_extend, key_of
from engine.log.write._check cimport is_well_formed
from engine.log.write._known_queues cimport KnownQueues
from engine.log.write._queue_counts cimport known_queues
from engine.log.write._undo cimport with_room
from engine.log.write._watches cimport arm, disarm, free_watches, init_watches, take_ready, wake

from engine.errors import DiskFullError, NotStoredError, PartlyWrittenError

cdef extern from "sys/uio.h" nogil:
    ssize_t pwritev(int fd, const iovec* parts, int count, long offset)

cdef enum:
    STAGING_SIZE = 1 << 20
    DIRECT_MIN = 32768           # bodies of this size or more are written from where they lie
    PART_MAX = 64


cdef class Appender(KnownQueues):
    """Owns the end of the log.

    Args:
        ids: window of ids that batches with the flag "check ids" are checked against.
        id_time: the time by which the window forgets. Asked at most once per append, and only for such batches.
        offsets, topics: see KnownQueues.
        roller: `roll(appender)` calls `set_segment` and returns True, or returns False when the disk has no room.
    """

    def __cinit__(self, env, bytes log_id, uint32_t epoch, IdWindow ids not None, id_time, offsets, topics, roller):
        self.env, self.offsets, self.topics, self.roller = env, offsets, topics, roller
        self.older = offsets.older
        self.refusal = ""
        self.epoch = epoch
        self.ids, self.id_time = ids, id_time
        self.monotonic_ms, self.id_ahead_ms = id_time.monotonic_ms, id_time.ahead_ms
        self.seed = crc32c_extend(0, <const char*>log_id, len(log_id))
        self.fd = -1
        self.staging = <uint8_t*>malloc(STAGING_SIZE)
        self.parts = <iovec*>malloc(PART_MAX * sizeof(iovec))
        if self.staging == NULL or self.parts == NULL:
            raise MemoryError()
        init_watches(&self.watches)

    def __dealloc__(self):
        free(self.staging)
        free(self.parts)
        free(self.undo)
        free_watches(&self.watches)

    def set_segment(self, file, SegmentIndex index, uint64_t segment_end, uint64_t position, uint64_t last_at, uint32_t last_crc):
        """Write to this segment from `position` on. `last_at` and `last_crc` are address and checksum of its last batch (0: none).

        Nothing may be staged.
        """
        assert self.part_count == 0 and self.staged == 0
        self.file = file
        self.fd = file.fileno()
        self.index = index
        self.segment_base = index.base
        self.segment_end = segment_end
        self.stage_position = position
        self.end_position = position
        self.last_at = self.staged_last_at = last_at
        self.last_crc = self.staged_last_crc = last_crc
        self.room_end = segment_end

    def end_segment(self):
        """Take no further batch in this segment: the next one rolls."""
        self.room_end = self.stage_position

    cdef int check_batch(self, const unsigned char* batch, bint trusted) except -1:
        """Code that refuses the batch, or 0. Its size field is already known to lie within the frame."""
        cdef BatchHeader* header = <BatchHeader*>batch
        cdef uint32_t queues
        cdef int code
        if not is_well_formed(batch, trusted):
            return CODE_INVALID
        if trusted:
            return 0
        if header.kind != KIND_MESSAGES:
            return CODE_INVALID
        queues = known_queues(&self.queue_counts, header.topic_id)
        if queues == 0:
            code = self.try_queues_of(header.topic_id, &queues)
            if code:
                return code
        if queues == 0:
            return CODE_UNKNOWN_TOPIC
        return 0 if header.queue < queues else CODE_INVALID

    cdef int stage_batch(self, const unsigned char* batch, bint trusted, int64_t now_ms, unsigned char* result) except -1:
        """Take one batch, whose size field is already known to lie within the frame.

        Returns its code; fills in what else the result says.
        """
        cdef BatchHeader* header = <BatchHeader*>batch
        cdef uint64_t padded = (<uint64_t>header.size + 7) & ~<uint64_t>7
        cdef QueueSlot* slot
        cdef Hash hash
        cdef IdEntry* first
        cdef uint64_t key
        cdef uint64_t* base_offset = <uint64_t*>(result + 8)
        cdef int code = self.check_batch(batch, trusted)
        if code:
            return code
        if header.flags & BATCH_CHECK_IDS:
            if not self.ids.hash_record(header.topic_id, batch + BATCH_HEADER_SIZE, &hash):
                return CODE_INVALID
            if self.id_now_ms < 0:
                self.id_now_ms = self.id_ahead_ms + <int64_t>self.monotonic_ms()
            first = self.ids.find(&hash, <uint32_t>(self.id_now_ms // 1000))
            if first and not (trusted and first.queue & CLAIM_QUEUE or first.queue == CLAIM_QUEUE | header.queue):    # see append.py
                self.ids.hits += 1
                (<uint32_t*>(result + 4))[0], base_offset[0] = first.queue & ~<uint32_t>CLAIM_QUEUE, first.offset
                return CODE_CLAIMED if first.queue & CLAIM_QUEUE else CODE_DUPLICATE
        code = self.make_room(padded, BATCH_HEADER_SIZE if header.size >= DIRECT_MIN else padded)
        if code:
            return code
        key = key_of(header.topic_id, header.queue)
        slot = self.index.find(key)
        if slot == NULL:
            code = self.try_counter(key, base_offset)
            if code:
                return code
            slot = self.index.claim(key)
            slot.next_offset = base_offset[0]
        base_offset[0] = slot.next_offset
        # What can fail comes before the index entry, so that a roll-back takes back exactly the entries that were made.
        self.undo = with_room(self.undo, self.undo_count, &self.undo_room)
        self.copy_batch(batch, base_offset[0], now_ms, padded)
        self.staged_last_at = self.stage_position - self.segment_base
        self.index.add(slot, base_offset[0], <uint32_t>self.staged_last_at, header.size, header.count, now_ms)
        self.undo[self.undo_count] = key
        self.undo_count += 1
        if header.flags & BATCH_CHECK_IDS:
            self.index.checked += 1
            self.ids.add(
                &hash, base_offset[0], header.queue, expiry_s(self.id_now_ms, header.reserved), <uint32_t>(self.id_now_ms // 1000)
            )
        self.stage_position += padded
        if self.watches.count and disarm(&self.watches, key):
            wake(&self.watches, key)
        return 0

    cdef int make_room(self, uint64_t padded, size_t copied) except -1:
        """Make room for a batch in the segment and the staging area. Returns the code that refuses it, or 0."""
        if padded > self.segment_end - self.segment_base - SEGMENT_HEADER_SIZE:
            return CODE_TOO_LARGE
        if self.stage_position + padded > self.room_end:
            self.flush()
            if not self.roller.roll(self):
                return CODE_DISK_FULL
            if padded > self.segment_end - self.segment_base - SEGMENT_HEADER_SIZE:
                return CODE_TOO_LARGE
        # 8 bytes for the padding of a body that is written from the caller's bytes, and up to three parts.
        if self.staged + copied + 8 > STAGING_SIZE or self.part_count + 3 > PART_MAX:
            self.flush()
        return 0

    cdef int copy_batch(self, const unsigned char* batch, uint64_t base_offset, int64_t now_ms, uint64_t padded) except -1:
        """Stage the batch with its header completed and checksummed. `make_room` has made room for it.

        A large body is not copied: it is written from the caller's bytes, before the caller's call ends.
        """
        cdef uint32_t size = (<BatchHeader*>batch).size
        cdef bint direct = size >= DIRECT_MIN
        cdef BatchHeader* staged = <BatchHeader*>(self.staging + self.staged)
        cdef uint32_t crc
        memcpy(staged, batch, BATCH_HEADER_SIZE if direct else size)
        staged.epoch = self.epoch
        staged.base_offset = base_offset
        staged.stored_at_ms = now_ms
        crc = crc32c_extend(self.seed, &self.stage_position, 8)
        if direct:
            crc = crc32c_extend(crc, <uint8_t*>staged + 4, BATCH_HEADER_SIZE - 4)
            crc = crc32c_extend(crc, batch + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE)
            self.add_part(staged, BATCH_HEADER_SIZE)
            self.staged += BATCH_HEADER_SIZE
            self.add_part(batch + BATCH_HEADER_SIZE, size - BATCH_HEADER_SIZE)
            if padded > size:
                memset(self.staging + self.staged, 0, 8)
                self.add_part(self.staging + self.staged, padded - size)
                self.staged += 8
        else:
            memset(<uint8_t*>staged + size, 0, padded - size)
            crc = crc32c_extend(crc, <uint8_t*>staged + 4, size - 4)
            self.add_part(staged, padded)
            self.staged += padded
        staged.crc = self.staged_last_crc = crc
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
        if self.refuses:
            self.check_refusal(trusted)
        self.client_batches += 0 if trusted else count
        self.id_now_ms = -1
        try:
            return self.stage_all(batches, size, count, max(now_ms, self.stored_ms_min), results, trusted)
        except Exception as error:
            return self.give_up(error)

    cdef int give_up(self, error) except -1:
        """Take back what is staged and raise: after an error, no batch of the caller may be written any more.

        Its bytes live only during the call, and it will be told that they are not stored.
        """
        self.roll_back()
        if isinstance(error, (DiskFullError, PartlyWrittenError)):
            raise error
        kind = PartlyWrittenError if self.part_written else NotStoredError
        self.part_written = False
        self.lost = self.owes
        raise kind(f"{self.file.path}: append at {self.end_position}: {error!r}") from error

    cdef int stage_all(self, const unsigned char* batches, size_t size, uint32_t count, int64_t now_ms, unsigned char* results,
                       bint trusted) except -1:
        cdef size_t at = 0
        cdef uint32_t i, batch_size
        cdef int code
        cdef int accepted = 0
        cdef bint direct = False
        memset(results, 0, APPEND_RESULT_SIZE * <size_t>count)
        for i in range(count):
            # Read only where a whole header is left; the batch is used only when all of it is.
            batch_size = (<BatchHeader*>(batches + at)).size if size >= BATCH_HEADER_SIZE and at <= size - BATCH_HEADER_SIZE else 0
            if batch_size < BATCH_HEADER_SIZE or batch_size > size - at:
                # Its end is unknown, and so is the start of every following batch.
                for i in range(i, count):
                    (<uint16_t*>(results + APPEND_RESULT_SIZE * i))[0] = CODE_INVALID
                break
            code = self.stage_batch(batches + at, trusted, now_ms, results + APPEND_RESULT_SIZE * i)
            (<uint16_t*>(results + APPEND_RESULT_SIZE * i))[0] = code
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

    cdef const unsigned char* last_written(self, uint64_t position) noexcept:
        cdef uint64_t size = self.end_position - position
        if self.part_count or self.kept_end != self.end_position or size > self.kept:
            return NULL
        return self.staging + (self.kept - size)

    cpdef int flush(self) except -1:
        """Write the staged batches. On return they are in the page cache and readable."""
        cdef int error = 0
        if self.part_count == 0:
            return 0
        self.write_parts(&error)
        if error == 0:
            self.kept = self.staged if self.part_count == 1 and self.parts[0].iov_base == self.staging else 0
            self.kept_end = self.stage_position
            self.part_count = self.staged = 0
            self.undo_count = 0
            self.ids.commit()
            self.end_position = self.stage_position
            self.last_at, self.last_crc = self.staged_last_at, self.staged_last_crc
            self.watches.woken_ready = self.watches.woken_count
            self.part_written = True
            return 0
        self.roll_back()
        if error in (ENOSPC, EDQUOT):
            kind = PartlyWrittenError if self.part_written else DiskFullError
            self.part_written = False
            # A later write of this turn met the full disk; callers that staged before it are told at the commit.
            self.lost = self.owes
            raise kind(f"{self.file.path}: {strerror(error).decode()}")
        self.env.die(f"{self.file.path}: write at {self.end_position} failed: {strerror(error).decode()}")
        return -1

    cdef int write_parts(self, int* error) except -1:
        """Write all parts, or none and set `error`.

        A write that fails half-way ends the process: the log's end is unknown then.
        """
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

    cdef int roll_back(self) except -1:
        while self.undo_count:
            self.undo_count -= 1
            self.index.take_back(self.undo[self.undo_count])
        self.ids.take_back()
        self.stage_position = self.end_position
        self.staged_last_at, self.staged_last_crc = self.last_at, self.last_crc
        self.part_count = self.staged = self.kept = 0
        self.watches.woken_ready = self.watches.woken_count
        return 0

    def watch(self, uint32_t topic_id, uint32_t queue):
        """Arm the queue: `take_woken` returns it once its next record can be read."""
        arm(&self.watches, key_of(topic_id, queue))

    def unwatch(self, uint32_t topic_id, uint32_t queue):
        """Disarm the queue; one that was not armed is no error."""
        disarm(&self.watches, key_of(topic_id, queue))

    def take_woken(self):
        """[(topic id, queue)] of armed queues whose records have become readable."""
        return take_ready(&self.watches)

    def append(self, const uint8_t[::1] batches not None, uint32_t count, int64_t now_ms, bint trusted=False, bint staged=False):
        """Append and return [(code, base offset)].

        Args:
            trusted: control batches are accepted, too.
            staged: leave the write to commit_staged().
        """
        cdef bytes results = self.append_results(batches, count, now_ms, trusted, staged)
        cdef const unsigned char* out = results
        cdef uint32_t i
        return [((<uint16_t*>(out + APPEND_RESULT_SIZE * i))[0], (<uint64_t*>(out + APPEND_RESULT_SIZE * i + 8))[0]) for i in range(count)]

    def append_results(self, const uint8_t[::1] batches not None, uint32_t count, int64_t now_ms, bint trusted=False, bint staged=False):
        """As `append`, with the results in the link's encoding: one `format.APPENDED` per batch."""
        cdef bytes results = PyBytes_FromStringAndSize(NULL, APPEND_RESULT_SIZE * <size_t>count)
        cdef unsigned char* out = <unsigned char*><char*>results
        cdef const unsigned char* start = &batches[0] if batches.shape[0] else NULL
        if not self.owes:
            self.part_written = False
        self.owes = self.owes or staged
        self.stage(start, batches.shape[0], count, now_ms, out, trusted)
        if not staged:
            self.flush()
        return results

    def set_refusal(self, str sentence not None, kind, bint refuses_all):
        """Raise an error of that kind in every append that is not trusted, or in all; an empty sentence ends it."""
        self.refusal, self.refused_as, self.refuses_all = sentence, kind, refuses_all
        self.refuses = len(sentence) > 0

    cdef int check_refusal(self, bint trusted) except -1:
        if self.refuses_all or not trusted:
            raise self.refused_as(self.refusal)
        return 0

    def commit_staged(self):
        """Write the staged batches. Raises for the caller that staged them."""
        self.commit()
