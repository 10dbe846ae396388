# cython: language_level=3
from libc.stdint cimport int32_t, uint32_t, uint64_t

from common.limits._meter cimport Meter


cdef enum:
    CODE_RATE_LIMITED = 200           # set by the proxy; not a code of the link

cdef enum:                            # verdicts about a whole call
    ADMIT = 0
    LEAVE = 1                         # the rare path may hold or split the call
    REFUSE = 2


cdef class HotAdmission:
    cdef public Meter own             # of the proxy's own limit; None: it has none
    cdef uint64_t call
    cdef double now
    cdef double wait                  # seconds that the topics' limits ask of the call
    cdef Meter first                  # of the first message
    cdef bint is_mixed
    cdef int32_t retry_after_ms
    cdef object slot                  # common.limits.retry_slot.RetrySlot of the refused call
    cdef int begin(self, double now) noexcept
    cdef int weigh(self, Meter meter, uint32_t size, uint32_t index) except -1
    cdef int verdict(self, Meter application, uint32_t count, size_t bytes, uint32_t first_size, slot) except -1
    cdef double first_wait(self, Meter application, uint32_t size, slot) except -1
    cdef int refuse(self, Meter application, uint32_t count, size_t bytes, slot) except -1
    cdef int commit(self, Meter application, uint32_t count, size_t bytes) except -1
