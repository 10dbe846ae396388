# cython: language_level=3
"""Evaluation over a stored message's bytes. Reference: match.py.

Bounds: the wire cursor checks each step against the message's size. A Value's `text` lies in the last message read.
"""
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from common.filter._numbers cimport EQUAL, GREATER, LESS, Number, negate, parse_number, side_of_numbers
from common.wire._cursor cimport T_MAP, T_STRING, Cursor, read_field, read_map, read_string, skip_value

from common.filter.nodes import FieldSource
from common.filter.program import FieldSlots, compile_formula

cdef extern from "string.h":
    void* memmem(const void* text, size_t size, const void* needle, size_t needle_size) nogil

cdef enum:
    # Op of program.py
    TEXT = 0
    NUMBER = 1
    TEXTS = 2
    NUMBERS = 3
    FIELD_TEXTS = 4
    FIELD_NUMBERS = 5
    IS_TRUE = 6
    IS_NULL = 7
    CONTAINS = 8
    STARTSWITH = 9
    ENDSWITH = 10
    LIKE = 11

cdef enum:
    # Outcomes of formula.py
    FALSE = 1
    TRUE = 2
    UNKNOWN = 4

cdef enum:
    PASS = -1
    KEY_FIELD = 3
    TAG_FIELD = 4
    PROPERTIES_FIELD = 5
    ANY = 0xFF
    ONE = 0xFE

cdef enum:
    NOT_LOOKED_AT = 0
    IS_NUMBER = 1
    NO_NUMBER = 2

cdef inline uint32_t hash_of(const uint8_t* text, uint32_t size) noexcept nogil:
    """FNV-1a."""
    cdef uint32_t found = 2166136261
    cdef uint32_t at
    for at in range(size):
        found = (found ^ text[at]) * 16777619
    return found


cdef class FieldTable:
    """Native form of match.FieldTable; it also stores the values of the message that was read last."""

    def __cinit__(self):
        self.slots = FieldSlots()
        self.names = []
        self.tag = self.key = -1
        self.hash_all()

    def __dealloc__(self):
        PyMem_Free(self.values)
        PyMem_Free(self.buckets)
        PyMem_Free(self.texts)
        PyMem_Free(self.sizes)

    cpdef int slot(self, field) except -1:
        cdef int slot = self.slots(field)
        if slot < len(self.names):
            return slot
        self.names.append(field.name.encode() if field.source == FieldSource.PROPERTY else None)
        self.grow()
        if field.source == FieldSource.TAG:
            self.tag = slot
        elif field.source == FieldSource.KEY:
            self.key = slot
        else:
            self.properties += 1
            self.hash_all()
        return slot

    cdef int grow(self) except -1:
        cdef uint32_t count = <uint32_t>len(self.names)
        cdef uint32_t room = self.room
        cdef void* grown
        cdef bytes name
        if count > room:
            room = max(<uint32_t>8, 2 * count)
            grown = PyMem_Realloc(self.values, room * sizeof(Value))
            if grown == NULL:
                raise MemoryError
            self.values = <Value*>grown
            memset(self.values + self.room, 0, (room - self.room) * sizeof(Value))
            grown = PyMem_Realloc(self.texts, room * sizeof(void*))
            if grown == NULL:
                raise MemoryError
            self.texts = <const uint8_t**>grown
            grown = PyMem_Realloc(self.sizes, room * sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError
            self.sizes = <uint32_t*>grown
            self.room = room
        name = self.names[count - 1] or b""
        self.texts[count - 1] = <const uint8_t*><const char*>name
        self.sizes[count - 1] = <uint32_t>len(name)
        return 0

    cdef int hash_all(self) except -1:
        """Insert the last name; rebuild the table when there are fewer than two buckets per name."""
        cdef uint32_t wanted = 8
        cdef uint32_t slot, at, start = 0
        while wanted < 2 * self.properties:
            wanted *= 2
        if self.buckets == NULL or self.bucket_mask + 1 != wanted:
            PyMem_Free(self.buckets)
            self.buckets = <uint32_t*>PyMem_Calloc(wanted, sizeof(uint32_t))
            if self.buckets == NULL:
                raise MemoryError
            self.bucket_mask = wanted - 1
        else:
            start = <uint32_t>len(self.names) - 1
        for slot in range(start, len(self.names)):
            if self.names[slot] is None:
                continue
            at = hash_of(self.texts[slot], self.sizes[slot]) & self.bucket_mask
            while self.buckets[at]:
                at = (at + 1) & self.bucket_mask
            self.buckets[at] = slot + 1
        return 0

    cdef bint read(self, const uint8_t* message, uint32_t size) noexcept:
        cdef Cursor c
        cdef int type, field_id = 0, slot
        cdef uint32_t start = 0, length = 0, properties_at = 0
        memset(&c, 0, sizeof(c))
        c.p, c.n = message, size
        self.stamp += 1
        while True:
            type = read_field(&c, &field_id)
            if type <= 0:
                break
            if type == T_STRING and (field_id == KEY_FIELD or field_id == TAG_FIELD):
                if not read_string(&c, &start, &length):
                    return False
                slot = self.key if field_id == KEY_FIELD else self.tag
                if slot >= 0:
                    set_value(self.values + slot, self.stamp, message + start, length)
                continue
            if type == T_MAP and field_id == PROPERTIES_FIELD:
                properties_at = c.at
            if not skip_value(&c, type, 1):
                return False
        if type < 0:
            return False
        if properties_at and self.properties:
            c.at = properties_at
            read_properties(self, &c)
        return True


cdef inline void set_value(Value* value, uint64_t stamp, const uint8_t* text, uint32_t size) noexcept:
    value.stamp = stamp
    value.text = text
    value.size = size
    value.numeric = NOT_LOOKED_AT


cdef void read_properties(FieldTable table, Cursor* c) noexcept:
    """Store the values of the properties in the map. read() has skipped the map before, so its bytes are complete."""
    cdef int keys = 0, texts = 0
    cdef uint32_t count = 0, start = 0, size = 0, text = 0, length = 0, at, slot
    if not read_map(c, &keys, &texts, &count) or keys != T_STRING or texts != T_STRING:
        return
    while count:
        count -= 1
        if not read_string(c, &start, &size) or not read_string(c, &text, &length):
            return
        at = hash_of(c.p + start, size) & table.bucket_mask
        while table.buckets[at]:
            slot = table.buckets[at] - 1
            if table.sizes[slot] == size and memcmp(table.texts[slot], c.p + start, size) == 0:
                set_value(table.values + slot, table.stamp, c.p + text, length)
                break
            at = (at + 1) & table.bucket_mask


cdef class Code:
    """Native form of match.Code."""

    def __init__(self, program):
        cdef Py_ssize_t at = 0, constant = 0
        steps, self.start = program
        self.kept = steps
        # One allocation: with thousands of filters, cache misses dominate. Constants need the wider alignment.
        constants = sum(len(step.constants) for step in steps)
        self.constants = <Constant*>PyMem_Calloc(1, len(steps) * sizeof(StepData) + constants * sizeof(Constant) + 1)
        if self.constants == NULL:
            raise MemoryError
        self.steps = <StepData*>(self.constants + <Py_ssize_t>constants)
        for step in steps:
            self.steps[at] = StepData(
                op=step.op, relation=step.relation, mask=step.mask, signs=step.signs, slot=step.slot, other=step.other,
                holds=step.holds, fails=step.fails, first=constant, count=len(step.constants),
            )
            for value in step.constants:
                fill_constant(self.constants + constant, value)
                constant += 1
            at += 1

    def __dealloc__(self):
        PyMem_Free(self.constants)

    cdef int run(self, FieldTable table) except -1:
        return run_steps(self.steps, self.constants, self.start, table)


cdef int run_steps(const StepData* steps, const Constant* constants, int32_t start, FieldTable table) except -1:
    cdef int32_t at = start
    cdef const StepData* step
    while at >= 0:
        step = steps + at
        at = step.holds if step.mask & outcome(step, constants + step.first, table.values, table.stamp) else step.fails
    return at == PASS


cdef class Filter:

    def __init__(self, formula):
        self.formula = formula
        self.table = FieldTable()
        program = compile_formula(formula, self.table.slot)
        self.code = Code(program)
        self.cost = <uint32_t>len(program.steps)

    def passes(self, bytes message not None):
        return bool(self.matches(<const uint8_t*><const char*>message, <uint32_t>len(message)))

    cdef int matches(self, const uint8_t* message, uint32_t size) except -1:
        if not self.table.read(message, size):
            return True
        return self.code.run(self.table)


cdef int fill_constant(Constant* constant, value) except -1:
    if isinstance(value, bytes):
        constant.text = <const uint8_t*><const char*>(<bytes>value)
        constant.size = <uint32_t>len(value)
    elif isinstance(value, int):
        constant.number.whole = True
        constant.number.integer = value
    else:
        constant.number.real = value
    return 0


cdef int outcome(const StepData* step, const Constant* constants, Value* values, uint64_t stamp) except -1:
    """Evaluate a step's predicate; returns one of the bits FALSE, TRUE and UNKNOWN."""
    cdef Value* value = values + step.slot
    cdef Value* other
    cdef uint8_t op = step.op
    if op == IS_NULL:
        return FALSE if value.stamp == stamp else TRUE
    if value.stamp != stamp:
        return UNKNOWN
    if op == TEXT:
        if step.relation == EQUAL and value.size != constants.size:
            return FALSE
        return outcome_of(step.relation & side_of_texts(value.text, value.size, constants.text, constants.size))
    if op == TEXTS:
        return outcome_of(find_text(value, constants, step.count))
    if op == IS_TRUE:
        return said(value)
    if op == FIELD_TEXTS:
        other = values + step.other
        if other.stamp != stamp:
            return UNKNOWN
        return outcome_of(step.relation & side_of_texts(value.text, value.size, other.text, other.size))
    if op == NUMBER or op == NUMBERS or op == FIELD_NUMBERS:
        return outcome_of_numbers(step, constants, value, values + step.other, stamp)
    if op == CONTAINS:
        return outcome_of(memmem(value.text, value.size, constants.text, constants.size) != NULL)
    if op == LIKE:
        return outcome_of(is_like(value.text, value.size, constants.text, constants.size))
    if value.size < constants.size:
        return FALSE
    return outcome_of(memcmp(value.text + (0 if op == STARTSWITH else value.size - constants.size), constants.text, constants.size) == 0)


cdef inline int outcome_of(int found) noexcept nogil:
    return TRUE if found else FALSE


cdef inline int side_of_texts(const uint8_t* left, uint32_t left_size, const uint8_t* right, uint32_t right_size) noexcept nogil:
    cdef int found = memcmp(left, right, min(left_size, right_size))
    if found == 0:
        return EQUAL if left_size == right_size else LESS if left_size < right_size else GREATER
    return LESS if found < 0 else GREATER


cdef bint find_text(const Value* value, const Constant* sorted_texts, uint32_t count) noexcept nogil:
    cdef uint32_t low = 0, high = count, middle
    cdef int side
    while low < high:
        middle = (low + high) >> 1
        side = side_of_texts(value.text, value.size, sorted_texts[middle].text, sorted_texts[middle].size)
        if side == EQUAL:
            return True
        if side == LESS:
            high = middle
        else:
            low = middle + 1
    return False


cdef int said(const Value* value) noexcept nogil:
    cdef const char* word = "true" if value.size == 4 else "false"
    cdef uint32_t at
    if value.size != 4 and value.size != 5:
        return UNKNOWN
    for at in range(value.size):
        if value.text[at] != <uint8_t>word[at] and value.text[at] != <uint8_t>word[at] - 32:
            return UNKNOWN
    return TRUE if value.size == 4 else FALSE


cdef bint is_like(const uint8_t* text, uint32_t text_size, const uint8_t* pattern, uint32_t size) noexcept nogil:
    cdef uint32_t at = 0, step = 0, mark = 0, resume = 0
    cdef bint can_resume = False
    while at < text_size:
        if step < size and pattern[step] == ANY:
            step += 1
            mark, resume, can_resume = at, step, True
        elif step < size and pattern[step] == ONE:
            at = after_char(text, text_size, at)
            step += 1
        elif step < size and pattern[step] == text[at]:
            at += 1
            step += 1
        elif can_resume:
            mark = after_char(text, text_size, mark)
            at, step = mark, resume
        else:
            return False
    return step == size or (step + 1 == size and pattern[step] == ANY)


cdef inline uint32_t after_char(const uint8_t* text, uint32_t size, uint32_t at) noexcept nogil:
    at += 1
    while at < size and text[at] & 0xC0 == 0x80:
        at += 1
    return at


cdef int outcome_of_numbers(const StepData* step, const Constant* constants, Value* value, Value* other, uint64_t stamp) except -1:
    cdef Number left, right
    if not look_at(value):
        return UNKNOWN
    if step.op == NUMBERS:
        return outcome_of(find_number(&value.number, constants, step.count))
    if step.op == NUMBER:
        return outcome_of(step.relation & side_of_numbers(&value.number, &constants.number))
    if other.stamp != stamp or not look_at(other):
        return UNKNOWN
    left, right = value.number, other.number
    if step.signs & 1:
        negate(&left)
    if step.signs & 2:
        negate(&right)
    return outcome_of(step.relation & side_of_numbers(&left, &right))


cdef bint look_at(Value* value) except -1:
    if value.numeric == NOT_LOOKED_AT:
        value.numeric = IS_NUMBER if parse_number(value.text, value.size, &value.number) else NO_NUMBER
    return value.numeric == IS_NUMBER


cdef bint find_number(const Number* number, const Constant* sorted_numbers, uint32_t count) noexcept nogil:
    cdef uint32_t low = 0, high = count, middle
    cdef int side
    while low < high:
        middle = (low + high) >> 1
        side = side_of_numbers(number, &sorted_numbers[middle].number)
        if side == EQUAL:
            return True
        if side == LESS:
            high = middle
        else:
            low = middle + 1
    return False
