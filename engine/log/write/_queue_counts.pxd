# cython: language_level=3
"""Numbers of queues by topic id, in an array that grows with the highest id met."""
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy


cdef struct QueueCounts:
    uint32_t* counts             # by topic id; 0: not looked up yet
    size_t room


cdef inline uint32_t known_queues(const QueueCounts* self, uint32_t topic_id) noexcept nogil:
    """Number of the topic's queues; 0 when it has to be looked up."""
    return self.counts[topic_id] if topic_id < self.room else 0


cdef inline int set_queues(QueueCounts* self, uint32_t topic_id, uint32_t queues) except -1:
    cdef size_t room = <size_t>topic_id + 1
    cdef uint32_t* grown
    if topic_id >= self.room:
        if room < self.room * 2:
            room = self.room * 2
        if room < 1024:
            room = 1024
        # Fresh zero pages cost nothing until a topic in them is touched, so a million cold topics stay out of memory.
        grown = <uint32_t*>calloc(room, sizeof(uint32_t))
        if grown == NULL:
            raise MemoryError()
        if self.room:
            memcpy(grown, self.counts, self.room * sizeof(uint32_t))
        free(self.counts)
        self.counts = grown
        self.room = room
    self.counts[topic_id] = queues
    return 0
