# cython: language_level=3
"""Head of a timer's record, for `cimport`. Layout: engine/link/timer.py."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    TIMER_HEAD_SIZE = 64         # after the head of the log's record around it


cdef packed struct TimerHead:
    uint32_t crc                 # of what follows
    int64_t due_ms
    uint32_t topic_id
    uint32_t queue
    uint64_t previous
    int64_t until_ms
    uint64_t gap_ms
    uint32_t times
    uint32_t growth
    uint32_t id_at
    uint8_t id_size
    uint8_t unused[3]
    uint32_t id_window_ms
