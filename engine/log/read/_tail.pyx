# cython: language_level=3
"""Reads of the newest batches. Reference: `LogReader.read`, which also handles all other cases.

Consumers that keep up read batches that lie side by side in the log although they belong to many queues. So the bytes
between the first of them and the end are read at once and kept for the following queues: bytes below `end_position`
never change. Every batch is verified.
"""
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from posix.unistd cimport pread

from engine.link.constants cimport BATCH_HEADER_SIZE, BATCH_MAGIC
from engine.log.segment._index cimport BatchHeader, IndexEntry, QueueSlot, crc32c_extend, key_of
from engine.log.segment._slice cimport Slice, cut, last_at_or_below
from engine.log.write._append cimport Appender

cdef enum:
    BEFORE = 2048                # a queue that is read later may have been written a little earlier
    WINDOW = 65536
    GAP_MAX = 4096               # two batches of a queue at most this far apart are worth one read


cdef class Tail:
    """Used by the loop's thread only."""

    def __init__(self, Appender appender not None, bytes log_id not None):
        self.appender = appender
        self.seed = crc32c_extend(0, <const char*>log_id, len(log_id))

    def __dealloc__(self):
        free(self.window)

    cdef int64_t end(self, uint32_t topic_id, uint32_t queue) noexcept:
        cdef QueueSlot* slot = self.appender.index.find(key_of(topic_id, queue))
        cdef uint64_t limit = self.appender.end_position - self.appender.segment_base
        cdef uint32_t count
        if slot == NULL:
            return -1
        count = slot.count
        if count and slot.entries[count - 1].at < limit:
            return <int64_t>slot.next_offset  # after its last batch, or where it was raised to
        while count and slot.entries[count - 1].at >= limit:
            count -= 1
        return <int64_t>(slot.entries[count - 1].base_offset + slot.entries[count - 1].count) if count else -1

    cdef bint is_raised_above(self, uint32_t topic_id, uint32_t queue, int64_t offset, uint32_t count) noexcept:
        """Whether the queue, whose last batch lies below the offset, ends above it: messages are lost there."""
        cdef QueueSlot* slot = self.appender.index.find(key_of(topic_id, queue))
        return slot != NULL and slot.count == count and offset < <int64_t>slot.next_offset

    cdef int next(self, uint32_t topic_id, uint32_t queue, int64_t offset, int64_t max_records, int64_t max_bytes, bint some,
                  Slice* found) except -1:
        cdef uint32_t count = 0
        cdef const IndexEntry* run = self.appender.index.find_run(key_of(topic_id, queue), &count)
        cdef uint64_t limit = self.appender.end_position - self.appender.segment_base
        cdef uint32_t at
        cdef const uint8_t* batch
        cdef BatchHeader* header
        cdef uint32_t crc
        cdef uint64_t position
        while count and run[count - 1].at >= limit:
            count -= 1
        if count == 0 or offset < <int64_t>run[0].base_offset:
            return ELSEWHERE
        at = last_at_or_below(run, count, <uint64_t>offset)
        if offset >= <int64_t>(run[at].base_offset + run[at].count):
            return NOTHING if at + 1 == count and not self.is_raised_above(topic_id, queue, offset, count) else ELSEWHERE
        if max_records <= 0 or (max_bytes <= 0 and some):
            return NOTHING
        batch = self.fetch(run, at, count, limit)
        if batch == NULL or run[at].size < BATCH_HEADER_SIZE:
            return ELSEWHERE
        header = <BatchHeader*>batch
        position = self.appender.segment_base + run[at].at
        if (header.size != run[at].size or header.magic != BATCH_MAGIC or header.base_offset != run[at].base_offset
                or header.count != run[at].count or header.topic_id != topic_id or header.queue != queue):
            return ELSEWHERE
        crc = crc32c_extend(crc32c_extend(self.seed, &position, 8), batch + 4, header.size - 4)
        if crc != header.crc:
            return ELSEWHERE
        found.first_offset = offset
        found.stored_at_ms = header.stored_at_ms
        found.records = batch + BATCH_HEADER_SIZE
        found.count = header.count
        found.size = header.size - BATCH_HEADER_SIZE
        if offset != <int64_t>header.base_offset or found.count > max_records or found.size > max_bytes:
            cut(found, <uint32_t>(offset - <int64_t>header.base_offset), max_records, max_bytes, some)
        return SOME if found.count else NOTHING

    cdef const uint8_t* fetch(self, const IndexEntry* run, uint32_t at, uint32_t count, uint64_t limit) except? NULL:
        """The batch's bytes, from the window when they are in it; NULL when the file does not have all of them."""
        cdef uint64_t base = self.appender.segment_base
        cdef uint64_t start = run[at].at
        cdef uint64_t stop = start + run[at].size
        cdef uint64_t span
        cdef uint32_t following
        cdef uint8_t* grown
        cdef ssize_t taken
        if (base + start >= self.window_position and base + stop <= self.window_position + self.window_size):
            return self.window + (base + start - self.window_position)
        if self.appender.fd < 0:
            return NULL
        if limit - start <= WINDOW - BEFORE:
            start -= min(<uint64_t>BEFORE, start)
            stop = limit
        else:
            for following in range(at + 1, count):
                span = <uint64_t>run[following].at + run[following].size
                if run[following].at < stop or run[following].at - stop > GAP_MAX or span - start > WINDOW:
                    break
                stop = span
        if stop - start > self.window_room:
            grown = <uint8_t*>realloc(self.window, stop - start)
            if grown == NULL:
                raise MemoryError()
            self.window, self.window_room = grown, stop - start
        self.window_size = 0
        self.window_position = base + start
        while self.window_size < stop - start:
            taken = pread(self.appender.fd, self.window + self.window_size, stop - start - self.window_size, start + self.window_size)
            if taken < 0 and errno == EINTR:
                continue
            if taken <= 0:
                break
            self.window_size += taken
        if base + run[at].at + run[at].size > self.window_position + self.window_size:
            return NULL
        return self.window + (base + run[at].at - self.window_position)
