# cython: language_level=3, boundscheck=False, wraparound=False
"""A slave that follows a master. Reference: following.py.

The slave's link passes frames of bytes by `take`, so that batches of messages cost no object.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from engine.log.write._tail cimport LogTail

from engine.link.errors import PayloadError
from engine.replication.following import JOIN_SYNC_MS, REPORT_MS, SYNC_BYTES, SYNC_MS, StaleEpochError
from engine.replication.frames import StoredFrame

cdef enum:
    BYTES_HEAD_SIZE = 20                 # u32 epoch, u64 position, u64 confirmed

cdef int64_t REPORT = REPORT_MS
cdef int64_t SYNC = SYNC_MS
cdef int64_t JOIN_SYNC = JOIN_SYNC_MS
cdef int64_t MUCH = SYNC_BYTES


cdef class Following:
    """One slave that follows one master in one epoch; ends with the link or the epoch."""

    def __cinit__(self, log, uint32_t epoch, int64_t now_ms):
        tail = getattr(log, "tail", None)
        self.log, self.epoch = log, epoch
        self.syncer = getattr(log, "syncer", log)
        self.tail = tail if isinstance(tail, LogTail) else None
        self.heard_ms = self.reported_ms = now_ms
        self.unsynced_ms = -1

    cdef int take(self, const unsigned char* payload, Py_ssize_t size, int64_t now_ms) except -1:
        cdef uint32_t epoch
        cdef uint64_t position, confirmed
        if self.tail is None or self.is_over or size < BYTES_HEAD_SIZE or (size - BYTES_HEAD_SIZE) % 8:
            return 0
        memcpy(&epoch, payload, 4)
        memcpy(&position, payload + 4, 8)
        memcpy(&confirmed, payload + 12, 8)
        if epoch != self.epoch:
            return 0
        if size > BYTES_HEAD_SIZE:
            if not self.tail.take_bytes(position, payload + BYTES_HEAD_SIZE, size - BYTES_HEAD_SIZE):
                return 0
            if self.unsynced_ms < 0:
                self.unsynced_ms = now_ms
        self.heard_ms = now_ms
        self.confirmed = max(self.confirmed, min(confirmed, self.end()))
        return 1

    def take_segment(self, frame, int64_t now_ms):
        """See the reference."""
        self.check(frame.epoch)
        self.heard_ms = now_ms
        self.log.begin_segment(frame.header)

    def take_bytes(self, frame, int64_t now_ms):
        """See the reference."""
        cdef uint64_t confirmed = frame.confirmed
        self.check(frame.epoch)
        self.heard_ms = now_ms
        if frame.data:
            self.log.apply(frame.position, frame.data)
            if self.unsynced_ms < 0:
                self.unsynced_ms = now_ms
        self.confirmed = max(self.confirmed, min(confirmed, self.end()))

    cdef uint64_t end(self) except? 0:
        return self.log.end_position if self.tail is None else self.tail.appender.end_position

    cdef bint has_news(self, int64_t now_ms) except -1:
        cdef uint64_t end = self.end()
        cdef uint64_t synced = self.syncer.durable_position
        if synced >= end:
            self.unsynced_ms = -1
        if (
            self.has_reported and end == self.reported_end and synced == self.reported_synced
            and now_ms - self.reported_ms < REPORT
        ):
            return False
        self.has_reported = True
        self.reported_end, self.reported_synced, self.reported_ms = end, synced, now_ms
        return True

    def report(self, int64_t now_ms):
        """The STORED to send at the end of a turn; None when there is nothing to tell."""
        if not self.has_news(now_ms):
            return None
        return StoredFrame(self.epoch, self.reported_end, self.reported_synced)

    def begins_sync(self, int64_t now_ms, bint joins):
        """Whether bytes have been unsynced for long enough; the caller begins a sync then."""
        if self.unsynced_ms < 0:
            return False
        cdef bint is_due = now_ms - self.unsynced_ms >= (JOIN_SYNC if joins else SYNC)
        if not is_due and <int64_t>self.end() - <int64_t>self.syncer.durable_position < MUCH:
            return False
        self.unsynced_ms = now_ms
        return True

    def silent_ms(self, int64_t now_ms):
        """Time since the last frame of the master."""
        return now_ms - self.heard_ms

    cdef int check(self, uint32_t epoch) except -1:
        if self.is_over:
            raise StaleEpochError(f"a frame of epoch {epoch}: this broker does not follow any more")
        if epoch < self.epoch:
            raise StaleEpochError(f"a frame of epoch {epoch}: this broker follows in epoch {self.epoch}")
        if epoch > self.epoch:
            raise PayloadError(f"a frame of epoch {epoch}: this broker has not adopted it, and follows in {self.epoch}")
        return 0
