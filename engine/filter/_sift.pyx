# cython: language_level=3
"""A filter over stored records. Twin: sift_pure.py, which says what is done and why."""
from libc.stdint cimport int64_t, uint8_t, uint32_t

from common.filter._match cimport Filter

cdef enum:
    ID_FLAG = 1
    ID_SIZE = 16


def sift(Filter filter_ not None, bytes records not None, Py_ssize_t start, int64_t most, int64_t bytes_max, bint some):
    """As the twin's."""
    cdef const uint8_t* p = <const uint8_t*><const char*>records
    cdef Py_ssize_t size = len(records), at = start, end, message
    cdef int64_t index = 0, passed = 0, first = -1, count = 0
    cdef Py_ssize_t first_at = 0, last_end = 0
    cdef list runs = []
    while at < size and passed < most:
        end = at + 4 + (<const uint32_t*>(p + at))[0]
        message = at + 5 + (ID_SIZE if p[at + 4] & ID_FLAG else 0)
        if filter_.takes(p + message, <uint32_t>(end - message)):
            if end - at > bytes_max and (some or passed):
                break
            bytes_max -= end - at
            passed += 1
            if first + count != index or count == 0:
                if count:
                    runs.append((first, count, first_at, last_end))
                first, count, first_at = index, 0, at
            count += 1
            last_end = end
        index += 1
        at = end
    if count:
        runs.append((first, count, first_at, last_end))
    return index, runs
