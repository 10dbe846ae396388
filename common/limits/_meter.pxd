# cython: language_level=3
from libc.stdint cimport uint64_t


cdef struct Bucket:
    bint limited                      # False: everything passes
    double rate                       # tokens per second
    double burst                      # capacity in tokens
    double tokens                     # below 0: taken in advance
    double promised                   # tokens that rejected callers may come for


cdef class Meter:
    cdef object __weakref__
    cdef public object limit
    cdef public list used             # joined at the first use while `noted` is false
    cdef public bint noted
    cdef Bucket messages, bytes
    cdef double refilled_at
    cdef readonly double asked_messages, asked_bytes
    cdef bint messages_short, bytes_short
    cdef uint64_t call                # the call that `pending_*` belong to
    cdef double pending_messages, pending_bytes
    cdef int note(self) except -1
    cdef int refill(self, double now) noexcept
    cdef double wait_for(self, double messages, double bytes, double now) noexcept
    cdef double wait_with(self, uint64_t call, double bytes, double now) noexcept
    cdef double slot_for(self, double messages, double bytes, double now) noexcept
    cdef double promise_slot(self, double messages, double bytes, double now) except -1
    cdef int commit(self, uint64_t call) except -1
    cdef int spend_behind(self, double messages, double bytes) except -1
    cdef int spend(self, double messages, double bytes) except -1
    cdef int turn_away(self, double messages, double bytes) except -1
