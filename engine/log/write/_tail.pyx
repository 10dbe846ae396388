# cython: language_level=3, boundscheck=False, wraparound=False
"""The end of a log that follows another one: whole batches of messages, verified, written and indexed without objects.

Reference: `LogApply.apply`, which takes all that this leaves: control batches, checked ids, what does not verify, files
without a descriptor, and writes that are not taken as a whole.
"""

from libc.stdint cimport uint32_t, uint64_t
from posix.unistd cimport pwrite

from engine.link.constants cimport BATCH_HEADER_SIZE, BATCH_MAGIC, KIND_MESSAGES
from engine.log.segment._index cimport BatchHeader, SegmentIndex, crc32c_extend, key_of
from engine.log.write._append cimport Appender


cdef inline uint64_t padded(uint32_t size) noexcept nogil:
    return (<uint64_t>size + 7) & ~<uint64_t>7


cdef class LogTail:
    """The appender's end, for bytes of a master."""

    def __cinit__(self, bytes log_id not None, Appender appender not None):
        self.appender = appender
        self.seed = crc32c_extend(0, <const char*>log_id, len(log_id))

    def take(self, uint64_t position, bytes data not None):
        """As `LogApply.apply`. Returns whether the bytes are in the log; otherwise nothing has changed."""
        return self.take_bytes(position, data, len(data)) == 1

    cdef int take_bytes(self, uint64_t position, const unsigned char* data, size_t size) except -1:
        cdef Appender appender = self.appender
        if not self.is_ready or size == 0 or position != appender.end_position or appender.fd < 0 or appender.part_count:
            return 0
        if size > appender.segment_end - position or not self.verify(position, data, size):
            return 0
        if pwrite(appender.fd, data, size, position - appender.segment_base) != <ssize_t>size:
            return 0  # the reference writes the same bytes again, and learns the reason
        self.enter(position, data, size)
        return 1

    cdef int verify(self, uint64_t position, const unsigned char* data, size_t size) noexcept nogil:
        """Whether the bytes are whole batches of messages of this log, for this position.

        Bounds: a header is read only where a whole one is left, and its batch only when all of it is.
        """
        cdef size_t at = 0
        cdef uint64_t own
        cdef uint32_t crc
        cdef const BatchHeader* header
        while at < size:
            header = <const BatchHeader*>(data + at)
            if size - at < BATCH_HEADER_SIZE or header.magic != BATCH_MAGIC or header.kind != KIND_MESSAGES or header.flags:
                return 0
            if header.size < BATCH_HEADER_SIZE or padded(header.size) > size - at:
                return 0
            own = position + at
            crc = crc32c_extend(self.seed, &own, 8)
            if crc32c_extend(crc, data + at + 4, header.size - 4) != header.crc:
                return 0
            at += padded(header.size)
        return 1

    cdef int enter(self, uint64_t position, const unsigned char* data, size_t size) except -1:
        """Take verified batches, which are written, into the index, and continue after them as `set_segment` would."""
        cdef Appender appender = self.appender
        cdef SegmentIndex index = appender.index
        cdef const BatchHeader* header = NULL
        cdef size_t at = 0, last = 0
        while at < size:
            header = <const BatchHeader*>(data + at)
            index.add(
                index.claim(key_of(header.topic_id, header.queue)), header.base_offset,
                <uint32_t>(position + at - appender.segment_base), header.size, header.count, header.stored_at_ms,
            )
            if header.epoch > appender.epoch:
                appender.epoch = header.epoch
            last = at
            at += padded(header.size)
        self.newest_ms = header.stored_at_ms
        appender.stage_position = appender.end_position = position + size
        appender.last_at = appender.staged_last_at = position + last - appender.segment_base
        appender.last_crc = appender.staged_last_crc = header.crc
        appender.room_end = appender.segment_end
        return 0
