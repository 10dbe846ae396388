# cython: language_level=3


cdef class Subscription:
    cdef readonly list cursors
    cdef readonly object ring
    cdef readonly object parked
    cdef public bint queued
