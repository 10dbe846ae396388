# cython: language_level=3
from libc.stdint cimport uint32_t


cdef struct Level:                     # of nesting in a message that is incomplete
    unsigned char kind                 # 12 struct, 13 map, 14 set, 15 list
    unsigned char first, second        # element types of a container
    uint32_t left                      # values left in a container; keys and values of a map count each


cdef struct MessageScan:                      # for the end of an unframed message
    size_t at
    int depth
    Level levels[17]


cdef inline uint32_t be32(const unsigned char* p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef Py_ssize_t scan_message(const unsigned char* p, size_t n, MessageScan* scan, size_t* need) noexcept nogil
