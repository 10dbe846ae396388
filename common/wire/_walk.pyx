"""Native walker. `_walk.pxd` documents the results; the reference walk.py checks in the same order.

If a field id occurs twice, each occurrence is checked against the rules and the last value counts, as in Thrift.

Bounds: all reads go through the cursor, whose functions check the frame's end first (`_cursor.pxd`).
"""

from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcmp, memset

from common.wire._cursor cimport (
    BAD_KIND, BAD_METHOD, BAD_NAME, BAD_VERSION, FIELD_TYPE, FRAME_TOO_LARGE, MISSING, T_I32, T_I64, T_LIST, T_MAP, T_STRING,
    T_STRUCT, TRAILING, Cursor, expect, fail, is_name, is_utf8, need, read_field, read_i32, read_i64, read_list_of,
    read_map, read_string, skip_value, wire_i32,
)

cdef extern from *:
    """
    /* The contract's types by field id. */
    static const unsigned char credential_types[] = {0, 11, 11, 10, 11};
    static const unsigned char message_types[] = {0, 11, 11, 11, 11, 13, 11, 10, 10, 8, 11};
    static const unsigned char send_types[] = {0, 12, 15, 8, 8, 8};
    static const unsigned char pull_types[] = {0, 12, 11, 15, 8, 8, 8, 15, 15, 8, 11};
    static const unsigned char ack_types[] = {0, 11, 8, 8, 11};
    static const unsigned char position_types[] = {0, 11, 8, 10, 10, 10};
    """
    const unsigned char[5] credential_types
    const unsigned char[11] message_types
    const unsigned char[6] send_types
    const unsigned char[11] pull_types
    const unsigned char[5] ack_types
    const unsigned char[6] position_types

cdef enum:
    # Structs of faults.FIELDS, shifted to their place
    ARGUMENTS = 0x100
    SEND_REQUEST = 0x200
    CREDENTIAL = 0x300
    MESSAGE = 0x400
    PULL_REQUEST = 0x500
    ACK = 0x600
    POSITION = 0x700

cdef enum:
    # Levels of nesting, the argument struct being 1
    IN_ARGUMENTS = 1
    IN_REQUEST = 2
    IN_CREDENTIAL = 3
    IN_ELEMENT = 4

cdef enum:
    # CallFault
    NO_MESSAGES = 1
    TIMEOUT = 2
    DURABILITY = 3
    REPLY_WAIT = 4
    REPLY_WAIT_COUNT = 5
    GROUP_NAME = 6
    PULL_TOPIC_NAME = 7
    MAX_MESSAGES = 8
    MAX_BYTES = 9
    WAIT = 10
    INVISIBLE = 11
    CREDENTIAL_TEXT = 12

cdef enum:
    METHOD_BYTES_MAX = 64
    FRAME_BYTES_MAX = 0x7FFFFFFF


# The header

cdef bint header_of(Cursor* c, const unsigned char* p, size_t n, Header* header) noexcept nogil:
    cdef uint32_t version
    memset(header, 0, sizeof(Header))
    memset(c, 0, sizeof(Cursor))
    if n > FRAME_BYTES_MAX:
        return fail(c, FRAME_TOO_LARGE, 0, 0)
    c.p = p
    c.n = <uint32_t>n
    if not need(c, 4):
        return False
    version = <uint32_t>wire_i32(p)
    if version >> 8 != 0x800100:
        return fail(c, BAD_VERSION, 0, 0)
    header.kind = version & 0xFF
    c.at = 4
    if not read_string(c, &header.name_start, &header.name_size):
        return False
    if not 0 < header.name_size <= METHOD_BYTES_MAX or not is_utf8(p + header.name_start, header.name_size):
        return fail(c, BAD_NAME, 4, 0)
    if not read_i32(c, &header.seqid):
        return False
    header.body_start = c.at
    if not 1 <= header.kind <= 4:
        return fail(c, BAD_KIND, 3, 0)
    return True


cdef bint call_of(Cursor* c, const unsigned char* p, size_t n, int32_t* seqid, const char* method, uint32_t size) noexcept nogil:
    """Read the header and check that it is a call of `method`."""
    cdef Header header
    cdef bint good = header_of(c, p, n, &header)
    seqid[0] = header.seqid
    if not good:
        return False
    if header.kind != 1:
        return fail(c, BAD_KIND, 3, 0)
    if header.name_size != size or memcmp(p + header.name_start, method, size) != 0:
        return fail(c, BAD_METHOD, header.name_start, 0)
    return True


cdef bint seen_all(Cursor* c, uint32_t seen, uint32_t required, uint32_t struct_field) noexcept nogil:
    """Check that no required field (bit id - 1) is missing; else set a fault for the first, at the struct's STOP."""
    cdef uint32_t missing = required & ~seen, field_id = 1
    if missing == 0:
        return True
    while not missing & 1:
        missing >>= 1
        field_id += 1
    return fail(c, MISSING, c.at - 1, struct_field + field_id)


cdef bint walk_credential(Cursor* c, uint32_t* start, uint32_t* size, int32_t* fault) noexcept nogil:
    cdef int type, field_id
    cdef uint32_t seen = 0, text, text_size
    start[0] = c.at
    while True:
        type = read_field(c, &field_id)
        if type < 0:
            return False
        if type == 0:
            break
        if not 1 <= field_id <= 4:
            if not skip_value(c, type, IN_CREDENTIAL):
                return False
            continue
        seen |= 1 << (field_id - 1)
        if not expect(c, type, credential_types[field_id], CREDENTIAL + field_id):
            return False
        if field_id == 3:
            if not skip_value(c, type, IN_CREDENTIAL):
                return False
            continue
        if not read_string(c, &text, &text_size):
            return False
        if field_id != 4 and fault[0] == 0 and not is_utf8(c.p + text, text_size):
            fault[0] = CREDENTIAL_TEXT
    size[0] = c.at - start[0]
    return seen_all(c, seen, 0b1111, CREDENTIAL)


include "_send.pxi"
include "_pull.pxi"


# Interface

cdef int walk_header(const unsigned char* p, size_t n, Header* header) noexcept nogil:
    cdef Cursor c
    header_of(&c, p, n, header)
    header.error = c.fault
    header.error_at = c.fault_at
    header.error_field = c.field
    return c.fault


cdef int walk_send(
    const unsigned char* p, size_t n, SendCall* call, Message* messages, uint32_t messages_max, uint32_t body_bytes_max
) noexcept nogil:
    cdef Cursor c
    memset(call, 0, sizeof(SendCall))
    if call_of(&c, p, n, &call.seqid, b"send", 4):
        send_arguments(&c, call, messages, messages_max, body_bytes_max)
    call.error = c.fault
    call.error_at = c.fault_at
    call.error_field = c.field
    return c.fault


cdef int walk_pull(const unsigned char* p, size_t n, PullCall* call, Ack* acks, uint32_t acks_max) noexcept nogil:
    cdef Cursor c
    memset(call, 0, sizeof(PullCall) - sizeof(call.topics))
    if call_of(&c, p, n, &call.seqid, b"pull", 4):
        pull_arguments(&c, call, acks, acks_max)
    call.error = c.fault
    call.error_at = c.fault_at
    call.error_field = c.field
    return c.fault


cdef bint valid_utf8(const unsigned char* p, size_t n) noexcept nogil:
    return is_utf8(p, <uint32_t>n)


cdef bint valid_name(const unsigned char* p, size_t n) noexcept nogil:
    return n <= FRAME_BYTES_MAX and is_name(p, <uint32_t>n)


cdef extern from *:
    """
    static inline uint32_t murmur2_word(const unsigned char* p) { uint32_t v; memcpy(&v, p, 4); return v; }
    """
    uint32_t murmur2_word(const unsigned char* p) noexcept nogil


cdef uint32_t murmur2(const unsigned char* p, size_t n) noexcept nogil:
    """Kafka's, from org.apache.kafka.common.utils.Utils: words are little-endian, the tail is not mixed like a word."""
    cdef uint32_t m = 0x5BD1E995, h = <uint32_t>0x9747B28C ^ <uint32_t>n, k
    cdef size_t i = 0
    while n - i >= 4:
        k = murmur2_word(p + i) * m
        k ^= k >> 24
        h = (h * m) ^ (k * m)
        i += 4
    if n - i == 3:
        h ^= <uint32_t>p[i + 2] << 16
    if n - i >= 2:
        h ^= <uint32_t>p[i + 1] << 8
    if n - i >= 1:
        h ^= p[i]
        h *= m
    h ^= h >> 13
    h *= m
    return h ^ (h >> 15)
