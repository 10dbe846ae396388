# cython: language_level=3
"""Queues as the appender knows them: their number by topic, and their next offsets. Reference: known_queues.py."""
import logging

from libc.stdlib cimport free

from engine.link.constants cimport CODE_UNAVAILABLE
from engine.log.segment._index cimport QueueSlot, SegmentIndex, key_of
from engine.log.write._queue_counts cimport known_queues, set_queues

from common.limited_log import LimitedLog
from engine.errors import LogError

log = LimitedLog(logging.getLogger("engine.log.write.known_queues"))


cdef class KnownQueues:
    """Base of the appender, which sets `offsets`, `topics` and `older`.

    Attributes:
        offsets: for a queue that no index in `older` knows, `load(topic_id, queue)` returns the offset after its last
            record, `load_free` the one that a new record gets.
        topics: `load_queue_count(topic_id)` returns 0 when there is no such topic.
        older: indexes of earlier segments in memory.
    """

    def __dealloc__(self):
        free(self.queue_counts.counts)

    def set_topic(self, uint32_t topic_id, uint32_t queues):
        """Note the number of the topic's queues."""
        set_queues(&self.queue_counts, topic_id, queues)

    def queue_count(self, uint32_t topic_id):
        """Number of the topic's queues; 0 when there is no such topic."""
        cdef uint32_t queues = 0
        self.queues_of(topic_id, &queues)
        return queues

    cdef int queues_of(self, uint32_t topic_id, uint32_t* queues) except -1:
        queues[0] = known_queues(&self.queue_counts, topic_id)
        if queues[0] == 0:
            queues[0] = self.topics.load_queue_count(topic_id)
            if queues[0]:
                set_queues(&self.queue_counts, topic_id, queues[0])
        return 0

    cdef int try_queues_of(self, uint32_t topic_id, uint32_t* queues) except -1:
        """As `queues_of`; returns 0, or the code that refuses a batch of the topic while the view cannot be read."""
        try:
            return self.queues_of(topic_id, queues)
        except (OSError, LogError) as error:
            return self.refuse_unknown(topic_id, error)

    cdef int try_counter(self, uint64_t key, uint64_t* next_offset) except -1:
        """Offset that a new record gets when the active segment has not seen the queue; returns 0 or a code, as above."""
        if self.known_counter(key, next_offset):
            return 0
        try:
            next_offset[0] = self.offsets.load_free(<uint32_t>(key >> 32), <uint32_t>key)
        except (OSError, LogError) as error:
            return self.refuse_unknown(<uint32_t>(key >> 32), error)
        return 0

    cdef int refuse_unknown(self, uint32_t topic_id, error) except -1:
        """Refuse one batch, of which nothing has been staged."""
        self.unknown_batches += 1
        log.error("topic=%d: a batch is refused: the view cannot be read: %s", topic_id, error)
        return CODE_UNAVAILABLE

    def next_offset(self, uint32_t topic_id, uint32_t queue):
        """Offset after the queue's last record, when the segment being written holds none of it."""
        cdef uint64_t next_offset = 0
        if self.known_counter(key_of(topic_id, queue), &next_offset):
            return next_offset
        return self.offsets.load(topic_id, queue)

    def free_offset(self, uint32_t topic_id, uint32_t queue):
        """Offset that a new record gets, when the segment being written holds none of the queue."""
        cdef uint64_t next_offset = 0
        if self.known_counter(key_of(topic_id, queue), &next_offset):
            return next_offset
        return self.offsets.load_free(topic_id, queue)

    cdef bint known_counter(self, uint64_t key, uint64_t* next_offset) except -1:
        """Whether an earlier index in memory knows the queue's next offset."""
        cdef SegmentIndex index
        cdef QueueSlot* slot
        for index in self.older:
            slot = index.find(key)
            if slot != NULL:
                next_offset[0] = slot.next_offset
                return True
        return False
