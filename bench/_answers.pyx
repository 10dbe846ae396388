"""Walks SendResponse and PullResponse: counts codes, takes receipts, allocates nothing but room for acknowledgements.

Answers come from the server under test, so every length is checked against the frame. A wrong answer must end the run
with an error line; it must not crash the generator.
"""

from libc.string cimport memcmp, memcpy, memset

from bench._bytes cimport (
    Buffer, Cursor, be64toh, left, peek_u32, put, put_field, put_u8, put_u32, reserve, take_bytes, take_field, take_u32,
    uint16_t,
)
from bench._histogram cimport record

cdef enum:
    DEPTH_MAX = 16
    T_I32 = 8
    T_I64 = 10
    T_STRING = 11
    T_STRUCT = 12
    T_MAP = 13
    T_SET = 14
    T_LIST = 15


cdef int _fixed_size(uint8_t kind) noexcept nogil:
    if kind == 2 or kind == 3:
        return 1
    if kind == 6:
        return 2
    if kind == T_I32:
        return 4
    if kind == T_I64 or kind == 4:
        return 8
    return 0


cdef int _skip(Cursor* cursor, uint8_t kind, int depth) noexcept nogil:
    """Step over one value. Each element takes at least a byte, so a false count ends at the end of the frame."""
    cdef const uint8_t* data
    cdef uint32_t count, index
    cdef uint8_t first, second
    cdef uint16_t field_id
    cdef int size = _fixed_size(kind)
    if size:
        if left(cursor) < <size_t>size:
            return -1
        cursor.at += size
        return 0
    if depth > DEPTH_MAX:
        return -1
    if kind == T_STRING:
        return take_bytes(cursor, &data, &count)
    if kind == T_STRUCT:
        while True:
            if take_field(cursor, &first, &field_id) < 0:
                return -1
            if first == 0:
                return 0
            if _skip(cursor, first, depth + 1) < 0:
                return -1
    if kind != T_LIST and kind != T_SET and kind != T_MAP:
        return -1
    if left(cursor) < 2:
        return -1
    first = second = cursor.at[0]
    cursor.at += 1
    if kind == T_MAP:
        second = cursor.at[0]
        cursor.at += 1
    if take_u32(cursor, &count) < 0:
        return -1
    for index in range(count):
        if _skip(cursor, first, depth + 1) < 0:
            return -1
        if kind == T_MAP and _skip(cursor, second, depth + 1) < 0:
            return -1
    return 0


cdef Kind _open_answer(Cursor* cursor, const char* name, uint32_t seqid) noexcept nogil:
    """Step over the message header and up to the success field of the result struct."""
    cdef uint32_t version, got_seqid
    cdef uint32_t size = 0
    cdef const uint8_t* got_name = NULL
    cdef uint8_t kind = 0
    cdef uint16_t field_id = 0
    if take_u32(cursor, &version) < 0 or take_bytes(cursor, &got_name, &size) < 0 or take_u32(cursor, &got_seqid) < 0:
        return BROKEN
    if size != 4 or memcmp(got_name, name, 4) != 0 or got_seqid != seqid:
        return BROKEN
    if version == <uint32_t>0x80010003:
        return EXCEPTION
    if version != <uint32_t>0x80010002 or take_field(cursor, &kind, &field_id) < 0 or kind != T_STRUCT or field_id != 0:
        return BROKEN
    return ANSWER


cdef int _open_list(Cursor* cursor, uint32_t* count) noexcept nogil:
    """The header of a list of structs."""
    if left(cursor) < 1 or cursor.at[0] != T_STRUCT:
        return -1
    cursor.at += 1
    return take_u32(cursor, count)


cdef int _coded_struct(Cursor* cursor, uint64_t* codes) noexcept nogil:
    """Read the code, field 1, of a SendResult or AckResult; other fields are not needed."""
    cdef uint8_t kind = 0
    cdef uint16_t field_id = 0
    cdef uint32_t code = CODES
    while True:
        if take_field(cursor, &kind, &field_id) < 0:
            return -1
        if kind == 0:
            break
        if kind == T_I32 and field_id == 1:
            if take_u32(cursor, &code) < 0:
                return -1
        elif _skip(cursor, kind, 0) < 0:
            return -1
    codes[code if code < CODES else CODES - 1] += 1
    return 0


cdef int _coded_list(Cursor* cursor, uint64_t* codes, uint32_t* count) noexcept nogil:
    cdef uint32_t index
    if _open_list(cursor, count) < 0:
        return -1
    for index in range(count[0]):
        if _coded_struct(cursor, codes) < 0:
            return -1
    return 0


cdef Kind walk_send_answer(const uint8_t* frame, size_t size, uint32_t seqid, SendTally* tally) noexcept nogil:
    """Count the code of each result; `tally.results` gets the number of results."""
    cdef Cursor cursor
    cdef uint8_t kind = 0
    cdef uint16_t field_id = 0
    cdef Kind opened
    cursor.at = frame
    cursor.end = frame + size
    tally.results = 0
    opened = _open_answer(&cursor, b"send", seqid)
    if opened != ANSWER:
        return opened
    while True:
        if take_field(&cursor, &kind, &field_id) < 0:
            return BROKEN
        if kind == 0:
            return ANSWER
        if kind == T_LIST and field_id == 1:
            if _coded_list(&cursor, tally.codes, &tally.results) < 0:
                return BROKEN
        elif _skip(&cursor, kind, 0) < 0:
            return BROKEN


cdef int _message(Cursor* cursor, PullTally* tally, PullNotes* notes) noexcept nogil:
    """Check the body's size; when this run sent it, record the time since its send."""
    cdef uint8_t kind = 0
    cdef uint16_t field_id = 0
    cdef const uint8_t* body = NULL
    cdef uint32_t size = 0
    cdef uint64_t stamp[2]
    while True:
        if take_field(cursor, &kind, &field_id) < 0:
            return -1
        if kind == 0:
            break
        if kind == T_STRING and field_id == 2:
            if take_bytes(cursor, &body, &size) < 0:
                return -1
        elif _skip(cursor, kind, 0) < 0:
            return -1
    tally.bytes += size
    tally.wrong_size += notes.body_size >= 0 and size != <uint32_t>notes.body_size
    if notes.mark and size >= 16:
        memcpy(stamp, body, 16)
        if stamp[0] == notes.mark and <int64_t>stamp[1] >= notes.since_ns:
            record(notes.end_to_end, notes.now_ns - <int64_t>stamp[1])
    return 0


cdef int _note_ack(PullNotes* notes, const uint8_t* receipt, uint32_t size) noexcept nogil:
    """An Ack with the verdict unset, which means DONE."""
    if notes.acks == NULL:
        return 0
    if reserve(notes.acks, size + 8) < 0:
        return -1
    put_field(notes.acks, T_STRING, 1)
    put_u32(notes.acks, size)
    put(notes.acks, receipt, size)
    put_u8(notes.acks, 0)
    notes.ack_count += 1
    return 0


cdef int _delivery(Cursor* cursor, PullTally* tally, PullNotes* notes) noexcept nogil:
    cdef uint8_t kind = 0
    cdef uint16_t field_id = 0
    cdef const uint8_t* receipt = NULL
    cdef uint32_t size = 0
    cdef uint32_t attempt = 1
    while True:
        if take_field(cursor, &kind, &field_id) < 0:
            return -1
        if kind == 0:
            break
        if kind == T_STRING and field_id == 1:
            if take_bytes(cursor, &receipt, &size) < 0:
                return -1
        elif kind == T_I32 and field_id == 4:
            if take_u32(cursor, &attempt) < 0:
                return -1
        elif kind == T_STRUCT and field_id == 7:
            if _message(cursor, tally, notes) < 0:
                return -1
        elif _skip(cursor, kind, 0) < 0:
            return -1
    tally.redelivered += attempt > 1
    return _note_ack(notes, receipt, size)


cdef int _deliveries(Cursor* cursor, PullTally* tally, PullNotes* notes) noexcept nogil:
    cdef uint32_t index, count
    if _open_list(cursor, &count) < 0:
        return -1
    for index in range(count):
        if _delivery(cursor, tally, notes) < 0:
            return -1
    tally.last_deliveries = count
    tally.deliveries += count
    return 0


cdef Kind walk_pull_answer(
    const uint8_t* frame, size_t size, uint32_t seqid, PullTally* tally, PullNotes* notes
) noexcept nogil:
    """Count deliveries and codes, and append an acknowledgement for each delivery to `notes.acks`."""
    cdef Cursor cursor
    cdef uint8_t kind = 0
    cdef uint16_t field_id = 0
    cdef uint32_t code = CODES, acked
    cdef Kind opened
    cursor.at = frame
    cursor.end = frame + size
    tally.last_deliveries = 0
    opened = _open_answer(&cursor, b"pull", seqid)
    if opened != ANSWER:
        return opened
    while True:
        if take_field(&cursor, &kind, &field_id) < 0:
            return BROKEN
        if kind == 0:
            break
        if kind == T_I32 and field_id == 1:
            if take_u32(&cursor, &code) < 0:
                return BROKEN
        elif kind == T_LIST and field_id == 2:
            if _deliveries(&cursor, tally, notes) < 0:
                return BROKEN
        elif kind == T_LIST and field_id == 3:
            if _coded_list(&cursor, tally.ack_codes, &acked) < 0:
                return BROKEN
        elif _skip(&cursor, kind, 0) < 0:
            return BROKEN
    tally.last_code = <int32_t>code
    tally.codes[code if code < CODES else CODES - 1] += 1
    return ANSWER


def count_send_codes(frame: bytes, seqid: int) -> dict[int, int] | None:
    """Code → number of results, as the load loop counts them; None when it is no such answer. For tests."""
    cdef SendTally tally
    memset(&tally, 0, sizeof(tally))
    if walk_send_answer(frame, len(frame), seqid, &tally) != ANSWER:
        return None
    return {code: tally.codes[code] for code in range(CODES) if tally.codes[code]}
