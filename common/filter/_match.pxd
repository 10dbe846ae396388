# cython: language_level=3
"""Evaluation of filters over stored bytes, for `cimport`, without Python objects. Reference: match.py."""
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from common.filter._numbers cimport Number


cdef struct Value:
    uint64_t stamp               # the value is present when this equals the table's stamp
    const uint8_t* text
    uint32_t size
    int numeric                  # of a present value: NOT_LOOKED_AT, IS_NUMBER, NO_NUMBER
    Number number


cdef struct Constant:
    const uint8_t* text          # in bytes that `Code.kept` holds
    uint32_t size
    Number number


cdef struct StepData:
    uint8_t op, relation, mask, signs
    uint32_t slot, other
    int32_t holds, fails
    uint32_t first, count        # the step's range of constants


cdef class FieldTable:
    cdef readonly object slots   # FieldSlots, as in match.py
    cdef list names              # of properties, by slot; None for others
    cdef int tag, key            # slots, -1 when no filter uses the field
    cdef Value* values
    cdef uint32_t room           # allocated entries of `values`
    cdef uint64_t stamp
    cdef uint32_t* buckets       # hash table: slot + 1 of a property, 0 for none
    cdef const uint8_t** texts   # of names, by slot
    cdef uint32_t* sizes
    cdef uint32_t bucket_mask, properties

    cpdef int slot(self, field) except -1
    cdef int grow(self) except -1
    cdef int hash_all(self) except -1
    # Read a message's fields, which stay valid as long as its bytes; False when the message is malformed.
    cdef bint read(self, const uint8_t* message, uint32_t size) noexcept


cdef class Code:
    cdef StepData* steps         # in the same allocation as the constants, after them
    cdef Constant* constants
    cdef int32_t start
    cdef object kept

    cdef int run(self, FieldTable table) except -1


cdef class Filter:
    cdef FieldTable table
    cdef Code code
    cdef readonly uint32_t cost
    cdef readonly object formula

    # Whether the message, in Thrift's binary encoding, passes the filter.
    cdef int matches(self, const uint8_t* message, uint32_t size) except -1


# Whether a present value is a number. It is parsed at most once per message.
cdef bint look_at(Value* value) except -1

# Same as Code.run(), for callers that keep the pointers themselves.
cdef int run_steps(const StepData* steps, const Constant* constants, int32_t start, FieldTable table) except -1
