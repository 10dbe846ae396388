# cython: language_level=3
from libc.stdint cimport uint32_t

from common.limits._meter cimport Meter


cdef class Destination:
    cdef readonly bytes name
    cdef readonly uint32_t topic_id
    cdef readonly uint32_t queues
    cdef readonly uint32_t body_bytes_max
    cdef readonly unsigned char durability       # 1 MEMORY, 2 FSYNC: the topic's default
    cdef public bint buffered         # the topic has a fallback buffer
    cdef public bint diverted         # and a backlog in it: messages need the slow path's look
    cdef readonly uint32_t id_window_ms          # how long clients' ids are checked for duplicates; 0: never
    cdef readonly bytes homes         # the broker group of each queue, a byte each; None: there is only one
    cdef readonly bytes ids           # u32 topic id at each broker group, 0 where it is not known; None: there is only one
    cdef bint used                    # found since the hand of the table came by last
    cdef public Meter meter           # of the topic's rate limit; None: it has none
    cdef public unsigned char grade   # 0 high, 1 normal, 2 low
    cdef public bint is_special       # its messages need more than the hot path does
    cdef public uint32_t checked_at   # generation of the configuration that it was last found right in; its user's business
    cdef uint32_t sticky_append[2]
    cdef uint32_t sticky_queue[2]
    cdef uint32_t next_queue


cdef class Destinations:
    cdef dict by_name
    cdef Py_ssize_t count_max
    cdef Py_ssize_t hand              # where in the dict eviction goes on
    cdef Destination find(self, const unsigned char* name, Py_ssize_t size)
    cdef int make_room(self) except -1
