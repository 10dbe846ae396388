# cython: language_level=3
"""C types for shipment.py, which is compiled as `_shipment`."""
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef class Shipment:
    cdef object _log
    cdef readonly object incarnation
    cdef readonly uint32_t epoch
    cdef readonly int64_t sent, stored, synced
    cdef int64_t _sent_ms, _told_ms, _moved_ms, _seen_end, _live_ms, _credit, _credit_ms, _due, _due_ms

    cpdef bint is_idle(self, int64_t end, int64_t now_ms) except *
    cpdef took(self, int64_t position, int64_t now_ms)
    cdef bint _may_take(self, int64_t size, int64_t now_ms) except *
    cdef _take(self, int64_t position, int64_t now_ms)
    cpdef told(self, uint32_t epoch, end, synced, int64_t now_ms)
