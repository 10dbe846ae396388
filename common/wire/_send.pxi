# Part of _walk.pyx: SendRequest and its messages.

cdef enum:
    # MessageFault
    TOPIC_MISSING = 1
    TOPIC_NAME = 2
    TOPIC_TEXT = 3
    BODY_SIZE = 4
    KEY_SIZE = 5
    KEY_TEXT = 6
    TAG_WORD = 7
    TAG_SIZE = 8
    TAG_TEXT = 9
    PROPERTIES_COUNT = 10
    PROPERTIES_SIZE = 11
    PROPERTIES_TEXT = 12
    ID_SIZE = 13
    ID_TEXT = 14
    DELIVER_AT = 15
    DELAY = 16
    DELIVER_AT_AND_DELAY = 17
    OPERATION = 18
    CANCEL_ID = 19
    MESSAGE_SIZE = 20
    LOOP_WITHOUT_DELAY = 21

cdef enum:
    KEY_BYTES_MAX = 4096
    TAG_BYTES_MAX = 128
    ID_CHARS_MAX = 64
    PROPERTIES_MAX = 64
    PROPERTIES_BYTES_MAX = 32768
    BESIDE_BODY_BYTES_MAX = 65536
    LOOP_PREFIX_SIZE = 14

cdef extern from *:
    """
    #define WIRE_TIME_MS_MAX INT64_C(253402300799999) /* the last millisecond of year 9999 */
    """
    int64_t WIRE_TIME_MS_MAX


cdef const char* LOOP_PREFIX = b"penstock-loop-"


cdef uint32_t characters(const unsigned char* p, uint32_t n) noexcept nogil:
    cdef uint32_t i, count = 0
    for i in range(n):
        count += (p[i] & 0xC0) != 0x80
    return count


cdef int check_id(const unsigned char* p, uint32_t n) noexcept nogil:
    if n == 0 or n > 4 * ID_CHARS_MAX:
        return ID_SIZE
    if not is_utf8(p, n):
        return ID_TEXT
    return ID_SIZE if n > ID_CHARS_MAX and characters(p, n) > ID_CHARS_MAX else 0


cdef int check_tag(const unsigned char* p, uint32_t n) noexcept nogil:
    cdef uint32_t i
    if n == 0:
        return TAG_WORD
    if n > TAG_BYTES_MAX:
        return TAG_SIZE
    for i in range(n):
        if p[i] <= 0x20 or p[i] == 0x7F:
            return TAG_WORD
    return 0 if is_utf8(p, n) else TAG_TEXT


cdef int check_key(const unsigned char* p, uint32_t n) noexcept nogil:
    if n > KEY_BYTES_MAX:
        return KEY_SIZE
    return 0 if is_utf8(p, n) else KEY_TEXT


cdef bint walk_properties(Cursor* c, Message* m, int* fault) noexcept nogil:
    cdef int key_type, value_type
    cdef uint32_t count, i, at = c.at, start, size, total = 0
    fault[0] = 0
    if not read_map(c, &key_type, &value_type, &count):
        return False
    if key_type != T_STRING or value_type != T_STRING:
        return fail(c, FIELD_TYPE, at + (key_type == T_STRING), MESSAGE + 5)
    if count > PROPERTIES_MAX:
        fault[0] = PROPERTIES_COUNT
    for i in range(2 * count):
        if not read_string(c, &start, &size):
            return False
        total += size
        if i % 2 == 0 and size > LOOP_PREFIX_SIZE and memcmp(c.p + start, LOOP_PREFIX, LOOP_PREFIX_SIZE) == 0:
            m.flags |= HAS_LOOP
        if fault[0] == 0:
            if total > PROPERTIES_BYTES_MAX:
                fault[0] = PROPERTIES_SIZE
            elif not is_utf8(c.p + start, size):
                fault[0] = PROPERTIES_TEXT
    return True


cdef bint read_time(Cursor* c, int64_t* value, int* fault, int fault_if_bad) noexcept nogil:
    if not read_i64(c, value):
        return False
    fault[0] = 0 if 0 <= value[0] <= WIRE_TIME_MS_MAX else fault_if_bad
    return True


cdef bint message_field(Cursor* c, Message* m, int field_id, int* fault, uint32_t body_bytes_max) noexcept nogil:
    """Read one known field and check what can be checked of it alone; the topic's name is checked after reply_to."""
    fault[0] = 0
    if field_id == 1:
        if not read_string(c, &m.topic_start, &m.topic_size):
            return False
        if not is_name(c.p + m.topic_start, m.topic_size) and not is_utf8(c.p + m.topic_start, m.topic_size):
            fault[0] = TOPIC_TEXT
    elif field_id == 2:
        if not read_string(c, &m.body_start, &m.body_size):
            return False
        fault[0] = BODY_SIZE if m.body_size > body_bytes_max else 0
    elif field_id == 3:
        if not read_string(c, &m.key_start, &m.key_size):
            return False
        fault[0] = check_key(c.p + m.key_start, m.key_size)
    elif field_id == 4:
        if not read_string(c, &m.tag_start, &m.tag_size):
            return False
        fault[0] = check_tag(c.p + m.tag_start, m.tag_size)
    elif field_id == 5:
        return walk_properties(c, m, fault)
    elif field_id == 6:
        if not read_string(c, &m.id_start, &m.id_size):
            return False
        fault[0] = check_id(c.p + m.id_start, m.id_size)
    elif field_id == 7:
        return read_time(c, &m.deliver_at_ms, fault, DELIVER_AT)
    elif field_id == 8:
        return read_time(c, &m.delay_ms, fault, DELAY)
    elif field_id == 9:
        if not read_i32(c, &m.operation):
            return False
        fault[0] = 0 if 0 <= m.operation <= 1 else OPERATION
    else:
        return read_string(c, &m.reply_to_start, &m.reply_to_size)
    return True


cdef int check_message(Cursor* c, Message* m) noexcept nogil:
    """Check the rules about several fields, for a message whose fields are valid one by one."""
    if not m.flags & HAS_TOPIC:
        return TOPIC_MISSING
    if not m.flags & HAS_REPLY_TO and not is_name(c.p + m.topic_start, m.topic_size):
        return TOPIC_NAME
    if m.flags & HAS_DELIVER_AT and m.flags & HAS_DELAY:
        return DELIVER_AT_AND_DELAY
    if m.flags & HAS_LOOP and not m.operation and not m.flags & (HAS_DELIVER_AT | HAS_DELAY):
        return LOOP_WITHOUT_DELAY
    if m.operation == 1 and not m.flags & HAS_ID:
        return CANCEL_ID
    if m.size > m.body_size and m.size - m.body_size > BESIDE_BODY_BYTES_MAX:
        return MESSAGE_SIZE
    return 0


cdef bint walk_message(Cursor* c, Message* m, uint32_t body_bytes_max) noexcept nogil:
    cdef int type, field_id, fault
    memset(m, 0, sizeof(Message))
    m.start = c.at
    while True:
        type = read_field(c, &field_id)
        if type < 0:
            return False
        if type == 0:
            break
        if not 1 <= field_id <= 10:
            if not skip_value(c, type, IN_ELEMENT):
                return False
            continue
        m.flags |= 1 << (field_id - 1)
        if not expect(c, type, message_types[field_id], MESSAGE + field_id):
            return False
        if not message_field(c, m, field_id, &fault, body_bytes_max):
            return False
        if m.fault == 0:
            m.fault = fault
    m.size = c.at - m.start
    if m.fault == 0:
        m.fault = check_message(c, m)
    return True


cdef bint walk_messages(Cursor* c, SendCall* call, Message* messages, uint32_t messages_max, uint32_t body_bytes_max) noexcept nogil:
    cdef uint32_t i
    call.message_count = 0
    if not read_list_of(c, T_STRUCT, messages_max, SEND_REQUEST + 2, &call.message_count):
        return False
    for i in range(call.message_count):
        if not walk_message(c, messages + i, body_bytes_max):
            return False
    return True


cdef bint send_option(Cursor* c, SendCall* call, int field_id) noexcept nogil:
    cdef int32_t value
    cdef int fault = 0
    if not read_i32(c, &value):
        return False
    if field_id == 3:
        call.timeout_ms = value
        fault = TIMEOUT if value < 0 else 0
    elif field_id == 4:
        call.durability = value
        fault = 0 if 0 <= value <= 4 else DURABILITY
    else:
        call.reply_wait_ms = value
        fault = REPLY_WAIT if value < 0 else 0
    if call.fault == 0:
        call.fault = fault
    return True


cdef bint send_field(
    Cursor* c, SendCall* call, int field_id, Message* messages, uint32_t messages_max, uint32_t body_bytes_max
) noexcept nogil:
    if field_id == 1:
        return walk_credential(c, &call.credential_start, &call.credential_size, &call.fault)
    if field_id == 2:
        return walk_messages(c, call, messages, messages_max, body_bytes_max)
    return send_option(c, call, field_id)


cdef bint send_request(
    Cursor* c, SendCall* call, Message* messages, uint32_t messages_max, uint32_t body_bytes_max
) noexcept nogil:
    cdef int type, field_id
    cdef uint32_t seen = 0
    call.timeout_ms = call.durability = call.reply_wait_ms = 0
    while True:
        type = read_field(c, &field_id)
        if type < 0:
            return False
        if type == 0:
            break
        if not 1 <= field_id <= 5:
            if not skip_value(c, type, IN_REQUEST):
                return False
            continue
        seen |= 1 << (field_id - 1)
        if not expect(c, type, send_types[field_id], SEND_REQUEST + field_id):
            return False
        if not send_field(c, call, field_id, messages, messages_max, body_bytes_max):
            return False
    if call.fault == 0 and call.message_count == 0:
        call.fault = NO_MESSAGES
    elif call.fault == 0 and call.reply_wait_ms > 0 and call.message_count != 1:
        call.fault = REPLY_WAIT_COUNT
    return seen_all(c, seen, 0b11, SEND_REQUEST)


cdef bint send_arguments(
    Cursor* c, SendCall* call, Message* messages, uint32_t messages_max, uint32_t body_bytes_max
) noexcept nogil:
    cdef int type, field_id
    cdef uint32_t seen = 0
    while True:
        type = read_field(c, &field_id)
        if type < 0:
            return False
        if type == 0:
            break
        if field_id != 1:
            if not skip_value(c, type, IN_ARGUMENTS):
                return False
            continue
        seen = 1
        if not expect(c, type, T_STRUCT, ARGUMENTS + 1):
            return False
        if not send_request(c, call, messages, messages_max, body_bytes_max):
            return False
    if not seen_all(c, seen, 1, ARGUMENTS):
        return False
    return c.at == c.n or fail(c, TRAILING, c.at, 0)
