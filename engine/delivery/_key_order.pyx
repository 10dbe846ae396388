# cython: language_level=3
"""Order by key. Reference: key_order.py, which documents the fields."""
from collections import deque

from libc.stdint cimport int64_t, uint32_t, uint64_t

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from common.wire._cursor cimport T_STRING, Cursor, read_field, read_string, skip_value
from engine.link.constants cimport ASSIGNED_ID_SIZE, RECORD_HAS_ID, RECORD_HEAD_SIZE

from engine.delivery.key_order import HELD, key_of

cdef enum:
    KEY_FIELD = 3
    NO_KEY = 0


cdef uint64_t number_of(const unsigned char* record, uint32_t size) noexcept nogil:
    """Native form of key_number().

    Bounds: the cursor checks each step against `size` before it reads, and read_string() returns a range within `size`.
    """
    cdef Cursor cursor
    cdef uint64_t number = NO_KEY
    cdef uint32_t start, length, i
    cdef int field = 0
    cdef int kind
    cursor.p = record
    cursor.n = size
    cursor.at = RECORD_HEAD_SIZE + (ASSIGNED_ID_SIZE if record[RECORD_HEAD_SIZE - 1] & RECORD_HAS_ID else 0)
    cursor.fault = 0
    cursor.elements = 0
    if cursor.at > size:
        return NO_KEY
    while True:
        kind = read_field(&cursor, &field)
        if kind == 0:
            return number
        if kind < 0:
            return NO_KEY
        if field == KEY_FIELD and kind == T_STRING:
            if not read_string(&cursor, &start, &length):
                return NO_KEY
            number = <uint64_t>0xCBF29CE484222325
            for i in range(start, start + length):
                number = (number ^ record[i]) * <uint64_t>0x100000001B3
            if number == NO_KEY:
                number = 1
        elif not skip_value(&cursor, kind, 1):
            return NO_KEY


def key_number(bytes record not None):
    """Hash of the key in a stored record; see the reference."""
    return number_of(<const unsigned char*>PyBytes_AS_STRING(record), <uint32_t>PyBytes_GET_SIZE(record))


cdef class KeyOrder:
    """Native form of KeyOrder; see the reference."""

    def __init__(self):
        self.numbers, self.heads, self.waiters = {}, {}, {}

    cpdef bint admit(self, int64_t offset, uint64_t number) except -1:
        cdef object at = offset
        cdef object key = number
        if number == NO_KEY:
            return True
        self.numbers[at] = key
        if self.heads.setdefault(key, at) is at:
            return True
        waiters = self.waiters.get(key)
        if waiters is None:
            waiters = self.waiters[key] = deque()
        waiters.append(at)
        self.waiting += 1
        return False

    cpdef bint admit_moving(self, int64_t offset, bytes record) except -1:
        cdef uint64_t number
        key = key_of(record)
        if key is None:
            return True
        number = number_of(<const unsigned char*>PyBytes_AS_STRING(record), <uint32_t>PyBytes_GET_SIZE(record))
        if self.moves is not None and self.moves.must_wait(offset, number, key) and number not in self.heads:
            self.heads[number] = HELD
        return self.admit(offset, number)

    def first_open(self, uint64_t number):
        head = self.heads.get(number, -1)
        return self.waiters[number][0] if head == HELD and number in self.waiters else head

    cpdef int64_t end_hold(self, int64_t offset) except? -1:
        key = self.numbers.get(offset)
        if key is None or self.heads.get(key) != HELD:
            return -1
        return self.promote(key, self.waiters[key])

    cpdef int64_t done(self, int64_t offset) except? -1:
        cdef int64_t following = -1
        key = self.numbers.pop(offset, None)
        if key is None:
            return -1
        waiters = self.waiters.get(key) if self.waiters else None
        head = self.heads[key]
        if <int64_t>head != offset:
            waiters.remove(offset)
            self.waiting -= 1
            if head == HELD:
                return self.promote(key, waiters)
            if not waiters:
                del self.waiters[key]
        elif waiters:
            following = self.promote(key, waiters)
        else:
            del self.heads[key]
        return following

    cdef int64_t promote(self, key, waiters) except? -1:
        cdef int64_t following = -1
        if not waiters:
            del self.heads[key]
        elif self.moves is not None and self.moves.is_held(waiters[0]):
            self.heads[key] = HELD
        else:
            head = waiters.popleft()
            self.heads[key] = head
            following = head
            self.waiting -= 1
        if not waiters:
            del self.waiters[key]
        return following

    def offsets(self):
        return list(self.numbers)
