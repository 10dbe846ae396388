# cython: language_level=3
"""Look-up of a message in a filter index. Reference: lookup.py, which documents classes and fields."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint32_t

from common.filter._match cimport Code, Constant, FieldTable, StepData, Value, look_at, run_steps


cdef class IndexEntry:
    cdef readonly object subscription
    cdef readonly Code code
    cdef readonly frozenset constants

    cdef const StepData* steps   # of `code`, NULL without: saves one memory access
    cdef const Constant* operands
    cdef int32_t start

    def __init__(self, subscription, Code code, frozenset constants):
        self.subscription, self.code, self.constants = subscription, code, constants
        if code is not None:
            self.steps, self.operands, self.start = code.steps, code.constants, code.start

    cdef inline int matches(self, FieldTable fields) except -1:
        return True if self.steps == NULL else run_steps(self.steps, self.operands, self.start, fields)


cdef class Bucket:
    cdef IndexEntry first             # most values are named by one formula only
    cdef list more               # None until there is a second one
    cdef public uint32_t mentions

    cdef int add(self, IndexEntry entry) except -1:
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
    cdef readonly uint32_t slot
    cdef readonly bint numeric
    cdef readonly dict buckets
    cdef readonly list other, none

    def __init__(self, uint32_t slot, bint numeric):
        self.slot, self.numeric = slot, numeric
        self.buckets, self.other, self.none = {}, [], []

    def put(self, value, IndexEntry entry):
        cdef Bucket bucket = self.buckets.get(value)
        if bucket is None:
            bucket = self.buckets[value] = Bucket()
        bucket.mentions += 1
        if entry is not None:
            bucket.add(entry)

    def remove(self, value, subscription):
        cdef Bucket bucket = self.buckets[value]
        bucket.mentions -= 1
        bucket.drop(subscription)
        if not bucket.mentions:
            del self.buckets[value]

    def is_empty(self):
        return not self.buckets


cdef class Lookup:
    cdef FieldTable fields
    cdef readonly list tables, rest

    def __init__(self, FieldTable fields not None):
        self.fields = fields
        self.tables, self.rest = [], []

    def matches(self, bytes message not None):
        cdef KeyTable table
        cdef Bucket bucket
        cdef IndexEntry entry
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
                if bucket.first.matches(self.fields):
                    found.append(bucket.first.subscription)
                if bucket.more is not None:
                    self.run(bucket.more, found)
            for entry in table.other:
                if key not in entry.constants and entry.matches(self.fields):
                    found.append(entry.subscription)
        return found

    cdef int run(self, list entries, list found) except -1:
        cdef IndexEntry entry
        for entry in entries:
            if entry.matches(self.fields):
                found.append(entry.subscription)
        return 0


cdef object key_of(Value* value, bint numeric):
    if not numeric:
        return PyBytes_FromStringAndSize(<const char*>value.text, value.size)
    return value.number.integer if value.number.whole else value.number.real


cpdef drop(list entries, subscription):
    cdef Py_ssize_t at
    for at in range(len(entries)):
        if (<IndexEntry>entries[at]).subscription == subscription:
            del entries[at]
            return
