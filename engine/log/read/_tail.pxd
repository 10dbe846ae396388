# cython: language_level=3
"""Reads of the newest batches, for `cimport` by engine/delivery: no Python objects, and one read for many queues."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from engine.log.segment._index cimport IndexEntry
from engine.log.segment._slice cimport Slice
from engine.log.write._append cimport Appender


cdef enum:
    SOME = 1                     # a slice was found
    NOTHING = 0                  # the queue ends here, or no further record fits
    ELSEWHERE = 2                # an older segment, damage, another kind of file: call Log.read()


cdef class Tail:
    cdef Appender appender
    cdef uint32_t seed
    cdef uint8_t* window
    cdef size_t window_room
    cdef uint64_t window_position, window_size

    # Offset after the queue's last readable record; -1 when the active segment has no record of the queue.
    cdef int64_t end(self, uint32_t topic_id, uint32_t queue) noexcept

    # Finds records from `offset` on, of one batch: at most `max_bytes`, but at least one record unless `some`.
    # Returns SOME, NOTHING or ELSEWHERE.
    cdef int next(self, uint32_t topic_id, uint32_t queue, int64_t offset, int64_t max_records, int64_t max_bytes, bint some,
                  Slice* found) except -1

    cdef bint is_raised_above(self, uint32_t topic_id, uint32_t queue, int64_t offset, uint32_t count) noexcept

    cdef const uint8_t* fetch(self, const IndexEntry* run, uint32_t at, uint32_t count, uint64_t limit) except? NULL
