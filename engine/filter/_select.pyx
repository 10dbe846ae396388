# cython: language_level=3
"""Selection of stored records by one filter. Reference: select.py."""
from libc.stdint cimport int64_t, uint8_t, uint32_t

from common.filter._match cimport Filter
from engine.link.constants cimport ASSIGNED_ID_SIZE, RECORD_HAS_ID, RECORD_HEAD_SIZE
from engine.link.loads cimport load32


def select(
    Filter filter_ not None, bytes records not None, Py_ssize_t start, int64_t messages_max, int64_t bytes_max, bint has_messages
):
    """Decide the records from byte `start` on; see the reference.

    Bounds: the log has verified the records, so the sizes of whole records lead from `start` exactly to the end of
    `records`.
    """
    cdef const uint8_t* p = <const uint8_t*><const char*>records
    cdef Py_ssize_t size = len(records), at = start, end, message
    cdef int64_t index = 0, selected = 0, first = -1, count = 0
    cdef Py_ssize_t first_at = 0, last_end = 0
    cdef list ranges = []
    while at < size and selected < messages_max:
        end = at + 4 + load32(p + at)
        message = at + RECORD_HEAD_SIZE + (ASSIGNED_ID_SIZE if p[at + RECORD_HEAD_SIZE - 1] & RECORD_HAS_ID else 0)
        if filter_.matches(p + message, <uint32_t>(end - message)):
            if end - at > bytes_max and (has_messages or selected):
                break
            bytes_max -= end - at
            selected += 1
            if first + count != index or count == 0:
                if count:
                    ranges.append((first, count, first_at, last_end))
                first, count, first_at = index, 0, at
            count += 1
            last_end = end
        index += 1
        at = end
    if count:
        ranges.append((first, count, first_at, last_end))
    return index, ranges
