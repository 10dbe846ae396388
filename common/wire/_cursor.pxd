"""Cursor over Thrift's strict binary protocol (big-endian), inlined into the walker.

Reference: cursor.py, function by function. Every function checks the frame's end before it reads, and returns False
(read_field: -1) after setting the cursor's fault. Cost is linear in the skipped bytes: each element of a container
needs at least one existing byte, and elements of fixed size are skipped at once.

Bounds: `p` has `n` bytes and `at` <= `n` at all times; need() compares with `n - at`, which cannot overflow.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline int16_t wire_i16(const unsigned char* p) { uint16_t v; memcpy(&v, p, 2); return (int16_t)__builtin_bswap16(v); }
    static inline int32_t wire_i32(const unsigned char* p) { uint32_t v; memcpy(&v, p, 4); return (int32_t)__builtin_bswap32(v); }
    static inline int64_t wire_i64(const unsigned char* p) { uint64_t v; memcpy(&v, p, 8); return (int64_t)__builtin_bswap64(v); }

    /* By type number. least: the bytes of the smallest value, 0 for a type that does not exist. fixed: 0 where it varies. */
    static const unsigned char wire_least[256] = {
        [2] = 1, [3] = 1, [4] = 8, [6] = 2, [8] = 4, [10] = 8, [11] = 4, [12] = 1, [13] = 6, [14] = 5, [15] = 5};
    static const unsigned char wire_fixed[256] = {[2] = 1, [3] = 1, [4] = 8, [6] = 2, [8] = 4, [10] = 8};
    static const unsigned char wire_name_char[256] = {
        ['A' ... 'Z'] = 1, ['a' ... 'z'] = 1, ['0' ... '9'] = 1, ['.'] = 1, ['_'] = 1, ['-'] = 1};
    """
    int16_t wire_i16(const unsigned char* p) noexcept nogil
    int32_t wire_i32(const unsigned char* p) noexcept nogil
    int64_t wire_i64(const unsigned char* p) noexcept nogil
    const unsigned char[256] wire_least
    const unsigned char[256] wire_fixed
    const unsigned char[256] wire_name_char

cdef enum:
    T_I32 = 8
    T_I64 = 10
    T_STRING = 11
    T_STRUCT = 12
    T_MAP = 13
    T_LIST = 15

cdef enum:
    DEPTH_MAX = 16
    NAME_BYTES_MAX = 249
    ELEMENTS_MAX = 100000

cdef enum:
    # WireFault of faults.py
    TRUNCATED = 1
    BAD_VERSION = 2
    BAD_NAME = 3
    BAD_KIND = 4
    BAD_METHOD = 5
    BAD_TYPE = 6
    TOO_DEEP = 7
    BAD_SIZE = 8
    BAD_COUNT = 9
    TRAILING = 10
    FIELD_TYPE = 11
    MISSING = 12
    LIST_TOO_LONG = 13
    FRAME_TOO_LARGE = 14
    TOO_MANY_ELEMENTS = 15

cdef struct Cursor:
    const unsigned char* p
    uint32_t n
    uint32_t at
    int32_t fault
    uint32_t fault_at
    uint32_t field
    uint32_t elements         # of all containers so far


cdef inline bint fail(Cursor* c, int32_t fault, uint32_t at, uint32_t field) noexcept nogil:
    c.fault = fault
    c.fault_at = at
    c.field = field
    return False


cdef inline bint need(Cursor* c, uint32_t size) noexcept nogil:
    if c.n - c.at < size:
        return fail(c, TRUNCATED, c.at, 0)
    return True


cdef inline int read_field(Cursor* c, int* field_id) noexcept nogil:
    """Return the type of the next field, 0 at the struct's end, -1 on a fault."""
    cdef int type
    if not need(c, 1):
        return -1
    type = c.p[c.at]
    if type == 0:
        c.at += 1
        return 0
    if wire_least[type] == 0:
        fail(c, BAD_TYPE, c.at, 0)
        return -1
    if not need(c, 3):
        return -1
    field_id[0] = wire_i16(c.p + c.at + 1)
    c.at += 3
    return type


cdef inline bint expect(Cursor* c, int type, int wanted, uint32_t field) noexcept nogil:
    """Check that the field just read has the contract's type."""
    if type != wanted:
        return fail(c, FIELD_TYPE, c.at - 3, field)
    return True


cdef inline bint read_i32(Cursor* c, int32_t* value) noexcept nogil:
    if not need(c, 4):
        return False
    value[0] = wire_i32(c.p + c.at)
    c.at += 4
    return True


cdef inline bint read_i64(Cursor* c, int64_t* value) noexcept nogil:
    if not need(c, 8):
        return False
    value[0] = wire_i64(c.p + c.at)
    c.at += 8
    return True


cdef inline bint read_string(Cursor* c, uint32_t* start, uint32_t* size) noexcept nogil:
    cdef int32_t claimed
    if not need(c, 4):
        return False
    claimed = wire_i32(c.p + c.at)
    if claimed < 0:
        return fail(c, BAD_SIZE, c.at, 0)
    if <uint32_t>claimed > c.n - c.at - 4:
        return fail(c, TRUNCATED, c.at, 0)
    start[0] = c.at + 4
    size[0] = <uint32_t>claimed
    c.at += 4 + <uint32_t>claimed
    return True


cdef inline bint read_count(Cursor* c, uint32_t least, uint32_t* count) noexcept nogil:
    """Read an element count; it must fit the bytes that follow, and the total limit of a call."""
    cdef int32_t claimed = wire_i32(c.p + c.at)
    if claimed < 0 or <uint64_t>claimed * least > c.n - c.at - 4:
        return fail(c, BAD_COUNT, c.at, 0)
    if <uint32_t>claimed > ELEMENTS_MAX - c.elements:
        return fail(c, TOO_MANY_ELEMENTS, c.at, 0)
    c.elements += <uint32_t>claimed
    count[0] = <uint32_t>claimed
    c.at += 4
    return True


cdef inline bint read_list(Cursor* c, int* type, uint32_t* count) noexcept nogil:
    if not need(c, 5):
        return False
    type[0] = c.p[c.at]
    if wire_least[type[0]] == 0:
        return fail(c, BAD_TYPE, c.at, 0)
    c.at += 1
    return read_count(c, wire_least[type[0]], count)


cdef inline bint read_list_of(Cursor* c, int wanted, uint32_t count_max, uint32_t field, uint32_t* count) noexcept nogil:
    """Read the head of a list of the contract; checks its element type and its limit per call."""
    cdef int type
    cdef uint32_t at = c.at
    if not read_list(c, &type, count):
        return False
    if type != wanted:
        return fail(c, FIELD_TYPE, at, field)
    if count[0] > count_max:
        return fail(c, LIST_TOO_LONG, at + 1, field)
    return True


cdef inline bint read_map(Cursor* c, int* key_type, int* value_type, uint32_t* count) noexcept nogil:
    if not need(c, 6):
        return False
    key_type[0] = c.p[c.at]
    value_type[0] = c.p[c.at + 1]
    if wire_least[key_type[0]] == 0:
        return fail(c, BAD_TYPE, c.at, 0)
    if wire_least[value_type[0]] == 0:
        return fail(c, BAD_TYPE, c.at + 1, 0)
    c.at += 2
    return read_count(c, wire_least[key_type[0]] + wire_least[value_type[0]], count)


cdef inline bint skip_struct(Cursor* c, int level) noexcept nogil:
    cdef int type, field_id
    while True:
        type = read_field(c, &field_id)
        if type <= 0:
            return type == 0
        if not skip_value(c, type, level):
            return False


cdef inline bint skip_list(Cursor* c, int level) noexcept nogil:
    cdef int type
    cdef uint32_t count
    if not read_list(c, &type, &count):
        return False
    if wire_fixed[type]:
        c.at += count * wire_fixed[type]
        return True
    while count:
        if not skip_value(c, type, level):
            return False
        count -= 1
    return True


cdef inline bint skip_map(Cursor* c, int level) noexcept nogil:
    cdef int key_type, value_type
    cdef uint32_t count
    if not read_map(c, &key_type, &value_type, &count):
        return False
    if wire_fixed[key_type] and wire_fixed[value_type]:
        c.at += count * (wire_fixed[key_type] + wire_fixed[value_type])
        return True
    while count:
        if not skip_value(c, key_type, level) or not skip_value(c, value_type, level):
            return False
        count -= 1
    return True


cdef inline bint skip_value(Cursor* c, int type, int level) noexcept nogil:
    """Skip one value inside `level` structs and containers; recursion ends at DEPTH_MAX."""
    cdef uint32_t start, size = wire_fixed[type]
    if size:
        if not need(c, size):
            return False
        c.at += size
        return True
    if type == T_STRING:
        return read_string(c, &start, &size)
    if level >= DEPTH_MAX:
        return fail(c, TOO_DEEP, c.at, 0)
    if type == T_STRUCT:
        return skip_struct(c, level + 1)
    if type == T_MAP:
        return skip_map(c, level + 1)
    return skip_list(c, level + 1)


cdef inline bint is_name(const unsigned char* p, uint32_t n) noexcept nogil:
    """Whether the bytes are a valid name of a topic or group."""
    cdef uint32_t i
    if n == 0 or n > NAME_BYTES_MAX or (p[0] == c'.' and (n == 1 or (n == 2 and p[1] == c'.'))):
        return False
    for i in range(n):
        if not wire_name_char[p[i]]:
            return False
    return True


cdef inline uint32_t sequence_size(const unsigned char* p, uint32_t left) noexcept nogil:
    """Return the size of the non-ASCII UTF-8 sequence at p, 0 when it is invalid.

    Invalid are cut and overlong sequences, surrogates, and code points above U+10FFFF.
    """
    cdef unsigned char first = p[0], low = 0x80, high = 0xBF
    cdef uint32_t size, i
    if first < 0xC2 or first > 0xF4:
        return 0
    size = 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
    if left < size:
        return 0
    if first == 0xE0:
        low = 0xA0
    elif first == 0xED:
        high = 0x9F
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if p[1] < low or p[1] > high:
        return 0
    for i in range(2, size):
        if (p[i] & 0xC0) != 0x80:
            return 0
    return size


cdef inline bint is_utf8(const unsigned char* p, uint32_t n) noexcept nogil:
    """Whether Python's strict decoder accepts the bytes; eight ASCII bytes per step."""
    cdef uint32_t i = 0, size
    cdef uint64_t word
    while i < n:
        if n - i >= 8:
            memcpy(&word, p + i, 8)
            if not word & <uint64_t>0x8080808080808080:
                i += 8
                continue
        if p[i] < 0x80:
            i += 1
            continue
        size = sequence_size(p + i, n - i)
        if size == 0:
            return False
        i += size
    return True
