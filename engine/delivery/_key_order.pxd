# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef uint64_t number_of(const unsigned char* record, uint32_t size) noexcept nogil


cdef class KeyOrder:
    cdef dict numbers, heads, waiters
    cdef readonly int64_t waiting
    cdef public object moves

    cpdef bint admit(self, int64_t offset, uint64_t number) except -1
    cpdef bint admit_moving(self, int64_t offset, bytes record) except -1
    cpdef int64_t end_hold(self, int64_t offset) except? -1
    cpdef int64_t done(self, int64_t offset) except? -1
    cdef int64_t promote(self, key, waiters) except? -1
