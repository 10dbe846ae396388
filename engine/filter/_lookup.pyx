# cython: language_level=3
"""What a message leads to in an index. Twin: lookup_pure.py, which says what the fields mean."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint32_t

from common.filter._match cimport Code, Constant, FieldTable, StepData, Value, look_at, run_steps


cdef class Entry:
    """As the twin's."""

    cdef readonly object subscription
    cdef readonly Code code
    cdef readonly frozenset constants

    cdef const StepData* steps   # of `code`, NULL without: one step less through memory
    cdef const Constant* operands
    cdef int32_t start

    def __init__(self, subscription, Code code, frozenset constants):
        self.subscription, self.code, self.constants = subscription, code, constants
        if code is not None:
            self.steps, self.operands, self.start = code.steps, code.constants, code.start

    cdef inline int takes(self, FieldTable fields) except -1:
        return True if self.steps == NULL else run_steps(self.steps, self.operands, self.start, fields)


cdef class Bucket:
    """As the twin's."""

    cdef Entry first             # most values are named by one formula only
    cdef list more               # None until there is a second one
    cdef public uint32_t mentions

    cdef int add(self, Entry entry) except -1:
        if self.first is None:
            self.first = entry
        elif self.more is None:
            self.more = [entry]
        else:
            self.more.append(entry)
        return 0

    cdef int drop(self, subscription) except -1:
        if self.first is None:
            return 0
        if self.first.subscription == subscription:
            self.first = self.more.pop() if self.more else None
        elif self.more is not None:
            drop(self.more, subscription)
        return 0


cdef class KeyTable:
    """As the twin's."""

    cdef readonly uint32_t slot
    cdef readonly bint numeric
    cdef readonly dict buckets
    cdef readonly list other, none

    def __init__(self, uint32_t slot, bint numeric):
        self.slot, self.numeric = slot, numeric
        self.buckets, self.other, self.none = {}, [], []

    def put(self, value, Entry entry):
        """As the twin's."""
        cdef Bucket bucket = self.buckets.get(value)
        if bucket is None:
            bucket = self.buckets[value] = Bucket()
        bucket.mentions += 1
        if entry is not None:
            bucket.add(entry)

    def take(self, value, subscription):
        """As the twin's."""
        cdef Bucket bucket = self.buckets[value]
        bucket.mentions -= 1
        bucket.drop(subscription)
        if not bucket.mentions:
            del self.buckets[value]

    def is_empty(self):
        """As the twin's."""
        return not self.buckets


cdef class Lookup:
    """As the twin's."""

    cdef FieldTable fields
    cdef readonly list tables, rest

    def __init__(self, FieldTable fields not None):
        self.fields = fields
        self.tables, self.rest = [], []

    def matches(self, bytes message not None):
        """As the twin's."""
        cdef KeyTable table
        cdef Bucket bucket
        cdef Entry entry
        cdef Value* value
        cdef list found = []
        if not self.fields.read(<const uint8_t*><const char*>message, <uint32_t>len(message)):
            return None
        self.run(self.rest, found)
        for table in self.tables:
            value = self.fields.values + table.slot
            if value.stamp != self.fields.stamp or (table.numeric and not look_at(value)):
                self.run(table.none, found)
                continue
            key = key_of(value, table.numeric)
            bucket = table.buckets.get(key)
            if bucket is None:
                self.run(table.other, found)
                continue
            if bucket.first is not None:
                if bucket.first.takes(self.fields):
                    found.append(bucket.first.subscription)
                if bucket.more is not None:
                    self.run(bucket.more, found)
            for entry in table.other:
                if key not in entry.constants and entry.takes(self.fields):
                    found.append(entry.subscription)
        return found

    cdef int run(self, list entries, list found) except -1:
        cdef Entry entry
        for entry in entries:
            if entry.takes(self.fields):
                found.append(entry.subscription)
        return 0


cdef object key_of(Value* value, bint numeric):
    if not numeric:
        return PyBytes_FromStringAndSize(<const char*>value.text, value.size)
    return value.number.integer if value.number.whole else value.number.real


cpdef drop(list entries, subscription):
    """As the twin's."""
    cdef Py_ssize_t at
    for at in range(len(entries)):
        if (<Entry>entries[at]).subscription == subscription:
            del entries[at]
            return
