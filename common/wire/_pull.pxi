# Part of _walk.pyx: PullRequest with its acknowledgements and positions.

cdef enum:
    # AckFault
    RECEIPT_MISSING = 1
    VERDICT = 2
    ACK_DELAY = 3
    REASON_TEXT = 4


cdef bint walk_topics(Cursor* c, PullCall* call) noexcept nogil:
    cdef uint32_t i
    cdef Span* topic
    call.topic_count = 0
    if not read_list_of(c, T_STRING, PULL_TOPICS_MAX, PULL_REQUEST + 3, &call.topic_count):
        return False
    for i in range(call.topic_count):
        topic = call.topics + i
        if not read_string(c, &topic.start, &topic.size):
            return False
        if call.fault == 0 and not is_name(c.p + topic.start, topic.size):
            call.fault = PULL_TOPIC_NAME
    return True


cdef bint ack_field(Cursor* c, Ack* ack, int field_id, int* fault) noexcept nogil:
    fault[0] = 0
    if field_id == 1:
        return read_string(c, &ack.receipt_start, &ack.receipt_size)
    if field_id == 2:
        if not read_i32(c, &ack.verdict):
            return False
        fault[0] = 0 if 0 <= ack.verdict <= 4 else VERDICT
        return True
    if field_id == 3:
        if not read_i32(c, &ack.delay_ms):
            return False
        fault[0] = ACK_DELAY if ack.delay_ms < 0 else 0
        return True
    if not read_string(c, &ack.reason_start, &ack.reason_size):
        return False
    fault[0] = 0 if is_utf8(c.p + ack.reason_start, ack.reason_size) else REASON_TEXT
    return True


cdef bint walk_ack(Cursor* c, Ack* ack) noexcept nogil:
    cdef int type, field_id, fault
    memset(ack, 0, sizeof(Ack))
    ack.delay_ms = -1
    while True:
        type = read_field(c, &field_id)
        if type < 0:
            return False
        if type == 0:
            break
        if not 1 <= field_id <= 4:
            if not skip_value(c, type, IN_ELEMENT):
                return False
            continue
        ack.flags |= 1 << (field_id - 1)
        if not expect(c, type, ack_types[field_id], ACK + field_id):
            return False
        if not ack_field(c, ack, field_id, &fault):
            return False
        if ack.fault == 0:
            ack.fault = fault
    if ack.fault == 0 and not ack.flags & HAS_RECEIPT:
        ack.fault = RECEIPT_MISSING
    return True


cdef bint walk_acks(Cursor* c, PullCall* call, Ack* acks, uint32_t acks_max) noexcept nogil:
    cdef uint32_t i
    call.ack_count = 0
    if not read_list_of(c, T_STRUCT, acks_max, PULL_REQUEST + 7, &call.ack_count):
        return False
    for i in range(call.ack_count):
        if not walk_ack(c, acks + i):
            return False
    return True


cdef bint walk_position(Cursor* c, PullCall* call) noexcept nogil:
    cdef int type, field_id
    cdef uint32_t seen = 0, start, size
    while True:
        type = read_field(c, &field_id)
        if type < 0:
            return False
        if type == 0:
            return seen_all(c, seen, 0b11, POSITION)
        if 1 <= field_id <= 5:
            seen |= 1 << (field_id - 1)
            if not expect(c, type, position_types[field_id], POSITION + field_id):
                return False
        if field_id != 1:
            if not skip_value(c, type, IN_ELEMENT):
                return False
            continue
        if not read_string(c, &start, &size):
            return False
        if call.fault == 0 and not is_name(c.p + start, size):
            call.fault = PULL_TOPIC_NAME


cdef bint walk_positions(Cursor* c, PullCall* call) noexcept nogil:
    cdef uint32_t i
    call.position_count = 0
    if not read_list_of(c, T_STRUCT, POSITIONS_MAX, PULL_REQUEST + 8, &call.position_count):
        return False
    for i in range(call.position_count):
        if not walk_position(c, call):
            return False
    return True


cdef bint pull_option(Cursor* c, PullCall* call, int field_id) noexcept nogil:
    cdef int32_t value
    cdef int fault_if_negative
    if not read_i32(c, &value):
        return False
    if field_id == 4:
        call.max_messages = value
        fault_if_negative = MAX_MESSAGES
    elif field_id == 5:
        call.max_bytes = value
        fault_if_negative = MAX_BYTES
    elif field_id == 6:
        call.wait_ms = value
        fault_if_negative = WAIT
    else:
        call.invisible_ms = -1 if value == 0 else value
        fault_if_negative = INVISIBLE
    if call.fault == 0 and value < 0:
        call.fault = fault_if_negative
    return True


cdef bint pull_field(Cursor* c, PullCall* call, int field_id, Ack* acks, uint32_t acks_max) noexcept nogil:
    if field_id == 1:
        return walk_credential(c, &call.credential_start, &call.credential_size, &call.fault)
    if field_id == 2:
        if not read_string(c, &call.group_start, &call.group_size):
            return False
        if call.fault == 0 and not is_name(c.p + call.group_start, call.group_size):
            call.fault = GROUP_NAME
        return True
    if field_id == 3:
        return walk_topics(c, call)
    if field_id == 7:
        return walk_acks(c, call, acks, acks_max)
    if field_id == 8:
        return walk_positions(c, call)
    if field_id == 10:
        return skip_value(c, T_STRING, IN_REQUEST)
    return pull_option(c, call, field_id)


cdef void reset_pull(PullCall* call) noexcept nogil:
    """The contract's defaults; a second request struct in one call starts from them too."""
    call.flags = call.ack_count = call.position_count = call.topic_count = 0
    call.max_messages = 32
    call.max_bytes = 1024 * 1024
    call.wait_ms = 0
    call.invisible_ms = -1


cdef uint32_t pull_flags(uint32_t seen) noexcept nogil:
    return (
        (HAS_TOPICS if seen & (1 << 2) else 0)
        | (HAS_ACKS if seen & (1 << 6) else 0)
        | (HAS_POSITIONS if seen & (1 << 7) else 0)
        | (HAS_INVISIBLE if seen & (1 << 8) else 0)
        | (HAS_TOPICS_AFTER if seen & (1 << 9) else 0)
    )


cdef bint pull_request(Cursor* c, PullCall* call, Ack* acks, uint32_t acks_max) noexcept nogil:
    cdef int type, field_id
    cdef uint32_t seen = 0
    reset_pull(call)
    while True:
        type = read_field(c, &field_id)
        if type < 0:
            return False
        if type == 0:
            break
        if not 1 <= field_id <= 10:
            if not skip_value(c, type, IN_REQUEST):
                return False
            continue
        seen |= 1 << (field_id - 1)
        if not expect(c, type, pull_types[field_id], PULL_REQUEST + field_id):
            return False
        if not pull_field(c, call, field_id, acks, acks_max):
            return False
    call.flags = pull_flags(seen)
    return seen_all(c, seen, 0b11, PULL_REQUEST)


cdef bint pull_arguments(Cursor* c, PullCall* call, Ack* acks, uint32_t acks_max) noexcept nogil:
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
        if not pull_request(c, call, acks, acks_max):
            return False
    if not seen_all(c, seen, 1, ARGUMENTS):
        return False
    return c.at == c.n or fail(c, TRAILING, c.at, 0)
