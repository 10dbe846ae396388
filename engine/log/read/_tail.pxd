# cython: language_level=3
"""Reading what was appended last, for `cimport` by engine/delivery: no Python object on the way, and one read of the file for many queues."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from engine.log.write._append cimport Appender
from engine.log.segment._index cimport IndexEntry


cdef enum:
    SOME = 1                     # a slice was found
    NOTHING = 0                  # the queue ends here, or nothing more fits
    ELSEWHERE = 2                # an older segment, damage, another kind of file: ask Log.read()


cdef struct Slice:
    int64_t first_offset
    int64_t stored_at_ms
    uint32_t count
    uint32_t size
    const uint8_t* records       # valid until the next call


cdef class Tail:
    cdef Appender appender
    cdef uint32_t seed
    cdef uint8_t* window
    cdef size_t window_room
    cdef uint64_t window_position, window_size

    # Offset behind the queue's last readable record; -1 when the segment being written has nothing of the queue.
    cdef int64_t end(self, uint32_t topic_id, uint32_t queue) noexcept

    # Records from `offset` on, of one batch. At most `max_bytes` of them, but at least one unless `some`. The answer is one of the three above.
    cdef int next(self, uint32_t topic_id, uint32_t queue, int64_t offset, int64_t max_records, int64_t max_bytes, bint some,
                  Slice* found) except -1

    cdef const uint8_t* fetch(self, const IndexEntry* run, uint32_t at, uint32_t count, uint64_t limit) except? NULL
