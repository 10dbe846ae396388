# cython: language_level=3
from libc.stdint cimport uint32_t

from common.wire._walk cimport Message
from engine.client._destination cimport Destination
from engine.client._lane cimport Lane

cdef enum:
    NO_QUEUE = 0xFFFFFFFF


cdef class Lanes:
    cdef readonly int number          # row of durability.LANES
    cdef readonly Lane only           # the one broker's; None: as many as broker groups
    cdef public bytes id_homes        # the broker group of each slot of ids; ID_SLOTS of them
    cdef readonly list lanes          # by the broker group's number; None: no such group any more
    cdef uint32_t choose(self, Destination destination, const unsigned char* key, Py_ssize_t key_size) except? 0
    cdef uint32_t choose_for(self, Destination destination, const unsigned char* frame, const Message* message) except? 0
    cdef unsigned char home_of_id(self, const unsigned char* shown, Py_ssize_t size) noexcept
    cdef uint32_t queue_of_id(self, Destination destination, const unsigned char* shown, Py_ssize_t size) noexcept
    cdef uint32_t bound_queue(self, Destination destination, key) except? 0
    cdef uint32_t next_of(self, Destination destination, bint any_share)
    cdef Lane home(self, Destination destination, uint32_t queue)
    cdef bint take_all(self, size_t bytes)
