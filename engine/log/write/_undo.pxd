# cython: language_level=3
"""Room for what a refused write takes back: a growing array of queue keys."""
from libc.stdint cimport uint64_t
from libc.stdlib cimport realloc


cdef inline uint64_t* with_room(uint64_t* undo, size_t count, size_t* room) except NULL:
    """The array with room for one more key after `count`; it may have moved. NULL is an array without room."""
    cdef uint64_t* grown
    if count < room[0]:
        return undo
    grown = <uint64_t*>realloc(undo, (room[0] * 2 + 64) * sizeof(uint64_t))
    if grown == NULL:
        raise MemoryError()
    room[0] = room[0] * 2 + 64
    return grown
