# cython: language_level=3
"""Windows of rows and the comparison of sorted rows, without a Python object per row. Reference: row_sets.py."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from migration.reconcile._bytes cimport big32, big64, put32

DEF ROW = 32
DEF OFFSET_MASK = 0x7FFFFFFFFFFFFFFF


cdef struct Window:
    uint64_t count, size, ids, contents, lowest, highest


def fold(bytes rows, dict windows):
    """As the reference."""
    cdef const uint8_t *row = <const uint8_t *> PyBytes_AS_STRING(rows)
    cdef Py_ssize_t number, count = PyBytes_GET_SIZE(rows) // ROW
    cdef uint32_t minute, last = 0
    cdef Window *window = NULL
    cdef uint64_t offset
    for number in range(count):
        minute = big32(row + 24)
        if window is NULL or minute != last:
            last = minute
            window = window_of(windows, minute)
        offset = big64(row + 16) & OFFSET_MASK
        window.count += 1
        window.size += big32(row + 28)
        window.ids ^= big64(row)
        window.contents ^= big64(row + 8)
        window.lowest = min(window.lowest, offset)
        window.highest = max(window.highest, offset)
        row += ROW


cdef Window *window_of(dict windows, uint32_t minute) except NULL:
    """The window in a bytearray that the dictionary owns, and that is never resized."""
    cdef Window *window
    found = windows.get(minute)
    if found is None:
        found = windows[minute] = bytearray(sizeof(Window))
        window = <Window *> PyByteArray_AS_STRING(found)
        window.lowest = OFFSET_MASK
    return <Window *> PyByteArray_AS_STRING(found)


def chosen(bytes rows, minutes):
    """As the reference."""
    cdef const uint8_t *row = <const uint8_t *> PyBytes_AS_STRING(rows)
    cdef Py_ssize_t number, count = PyBytes_GET_SIZE(rows) // ROW, size = 0
    cdef bytes out = PyBytes_FromStringAndSize(NULL, count * ROW)
    cdef uint8_t *made = <uint8_t *> PyBytes_AS_STRING(out)
    cdef uint32_t minute, last = 0
    cdef bint is_first = True, wanted = False
    for number in range(count):
        minute = big32(row + 24)
        if is_first or minute != last:
            is_first, last, wanted = False, minute, minute in minutes
        if wanted:
            memcpy(made + size, row, ROW)
            size += ROW
        row += ROW
    return out[:size]


def holding(bytes rows, ids):
    """As the reference."""
    cdef const uint8_t *row = <const uint8_t *> PyBytes_AS_STRING(rows)
    cdef Py_ssize_t number, count = PyBytes_GET_SIZE(rows) // ROW
    cdef list found = []
    for number in range(count):
        if big64(row) in ids:
            found.append(PyBytes_FromStringAndSize(<char *> row, ROW))
        row += ROW
    return b"".join(found)


cdef int compared(const void *one, const void *other) noexcept nogil:
    return memcmp(one, other, ROW)


def ordered(bytes rows):
    """As the reference."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(rows)
    cdef bytes out = PyBytes_FromStringAndSize(PyBytes_AS_STRING(rows), size)
    cdef char *data = PyBytes_AS_STRING(out)
    with nogil:
        qsort(data, size // ROW, ROW, &compared)
    return out


def differing(bytes kafka, bytes engine):
    """As the reference."""
    cdef const uint8_t *left = <const uint8_t *> PyBytes_AS_STRING(kafka)
    cdef const uint8_t *right = <const uint8_t *> PyBytes_AS_STRING(engine)
    cdef const uint8_t *left_end = left + PyBytes_GET_SIZE(kafka)
    cdef const uint8_t *right_end = right + PyBytes_GET_SIZE(engine)
    cdef Py_ssize_t left_size, right_size
    cdef int order
    cdef list found = []
    while left < left_end or right < right_end:
        order = -1 if right >= right_end else 1 if left >= left_end else memcmp(left, right, 8)
        left_size = group_size(left, left_end) if order <= 0 else 0
        right_size = group_size(right, right_end) if order >= 0 else 0
        if left_size != right_size or not same_contents(left, right, left_size):
            add_group(found, left, left_size, 0)
            add_group(found, right, right_size, 1)
        left += left_size
        right += right_size
    return b"".join(found)


cdef Py_ssize_t group_size(const uint8_t *row, const uint8_t *end) noexcept:
    """Bytes of the rows that have the first one's id."""
    cdef Py_ssize_t size = ROW
    while row + size < end and memcmp(row, row + size, 8) == 0:
        size += ROW
    return size


cdef bint same_contents(const uint8_t *left, const uint8_t *right, Py_ssize_t size) noexcept:
    cdef Py_ssize_t at = 0
    while at < size:
        if memcmp(left + at + 8, right + at + 8, 8) != 0:
            return False
        at += ROW
    return True


cdef int add_group(list found, const uint8_t *rows, Py_ssize_t size, uint32_t side) except -1:
    cdef Py_ssize_t at = 0
    cdef uint8_t row[ROW]
    while at < size:
        memcpy(row, rows + at, ROW)
        put32(row + 28, side)
        found.append(PyBytes_FromStringAndSize(<char *> row, ROW))
        at += ROW
    return 0
