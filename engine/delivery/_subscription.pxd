# cython: language_level=3


cdef class Subscription:
    cdef readonly list places
    cdef readonly object ring
    cdef readonly object parked
    cdef public bint queued
