# cython: language_level=3
"""Queues as the appender knows them, for `cimport`."""
from libc.stdint cimport uint32_t, uint64_t

from engine.log.write._queue_counts cimport QueueCounts


cdef class KnownQueues:
    cdef object offsets, topics
    cdef public list older
    cdef QueueCounts queue_counts
    cdef readonly uint64_t unknown_batches   # batches refused because the view could not be read

    cdef int queues_of(self, uint32_t topic_id, uint32_t* queues) except -1
    cdef int try_queues_of(self, uint32_t topic_id, uint32_t* queues) except -1
    cdef bint known_counter(self, uint64_t key, uint64_t* next_offset) except -1
    cdef int try_counter(self, uint64_t key, uint64_t* next_offset) except -1
    cdef int refuse_unknown(self, uint32_t topic_id, error) except -1
