# cython: language_level=3
"""C types for broker_turn.py, which is compiled as `_broker_turn`."""
cimport cython
from libc.stdint cimport int64_t


cdef class BrokerTurn:
    cdef object _broker, _now_ms, _send_tail, _serve_soon
    cdef dict _slaves, _asked
    cdef int64_t _end, _durable
    cdef bint _is_told
    cdef public bint has_contact

    @cython.locals(end=int64_t, durable=int64_t)
    cpdef run(self)

    cpdef stored(self, str name, peer, epoch, end, synced)
    cpdef confirm(self)

    @cython.locals(now_ms=int64_t, asks=bint)
    cpdef ship(self)

    cdef _send_frames(self, group, name, peer, bint asks, now_ms)

    @cython.locals(end=int64_t)
    cdef bint _sent_tail(self, life, shipment, peer, int64_t now_ms) except *
