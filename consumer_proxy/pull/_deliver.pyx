"""Builds the Thrift reply from an answer's pieces, in two passes over the bytes: measure, then write once.

Reference: deliver.py, whose docstrings specify each function. No message is decoded: a stored record is copied between
the fields of its Delivery. Only a message with its own id is scanned, to find the id.

Bounds: every pointer is checked against the end of its piece or payload in `measure`, before anything is written;
`put_piece` reads the same bytes again and writes into a buffer of the measured size.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from consumer_proxy.pull._reply_fields cimport REPLY_FIELDS_SIZE, ReplyKey, find_source, put_reply_fields
from common.wire._skip cimport be32, le16, le32, le64, put_be32, put_be64, skip_value

from engine.link.constants cimport (
    ASSIGNED_ID_SIZE, CODE_INVALID, PIECE_SIZE, RECEIPT_SIZE, RECORD_HAS_ID, RECORD_HAS_SOURCE_OFFSET,
    RECORD_HAS_TRAILER, RECORD_HEAD_SIZE, REPLY_TOKEN_SIZE, SOURCE_OFFSET_SIZE, TOKEN_SIZE,
)

from consumer_proxy.pull import reply_format
from engine.link.errors import PayloadError

cdef enum:
    FIXED_MAX = 95                  # receipt to stored_at_ms of a Delivery, with a receipt

cdef uint32_t LOCAL = 0x80000000
cdef dict ACK_SENTENCES = reply_format.ACK_SENTENCES
cdef int REFUSED = reply_format.REFUSED, OF_ENGINE = reply_format.OF_ENGINE
cdef int sentences_max = reply_format.ACK_SENTENCES_MAX
cdef bytes NO_RECEIPT = bytes(TOKEN_SIZE)
cdef const unsigned char* no_receipt = <const unsigned char*> PyBytes_AS_STRING(NO_RECEIPT)
cdef const unsigned char* HEX = <const unsigned char*> b"0123456789abcdef"

cdef extern from "string.h" nogil:
    int memcmp(const void* a, const void* b, size_t size)

cdef struct Record:
    const unsigned char* id         # 16 raw bytes when assigned, else the message's own, which may be empty
    uint32_t id_size                # as text
    bint assigned
    const unsigned char* message
    uint32_t size
    const unsigned char* request    # the token, or NULL
    bint is_sound                   # its message is one whole Thrift struct


cdef struct PieceView:
    const unsigned char* token
    uint64_t offset
    uint32_t delta
    uint32_t queue
    uint32_t count
    uint32_t attempt
    int64_t stored_at_ms
    const unsigned char* records
    uint32_t size


cdef const unsigned char* read_piece(const unsigned char* p, const unsigned char* end, PieceView* piece) noexcept nogil:
    """The position after the piece; NULL when it runs past the end."""
    if end - p < PIECE_SIZE:
        return NULL
    piece.token = p
    piece.offset = le64(p + 48)
    piece.delta = le32(p + 56)
    piece.queue = le32(p + 60)
    piece.count = le32(p + 64)
    piece.attempt = le32(p + 68)
    piece.stored_at_ms = <int64_t> le64(p + 72)
    piece.size = le32(p + 80)
    piece.records = p + PIECE_SIZE
    if <uint64_t> piece.size > <uint64_t> (end - piece.records):
        return NULL
    return piece.records + piece.size


cdef bint find_id(Record* record) noexcept nogil:
    """Find the id, field 6 of the stored Message, unless one is assigned; the last one wins, as in Thrift.

    False when the message is malformed, or does not end where its record ends: what comes after it would be read as
    fields of the reply.
    """
    cdef const unsigned char* p = record.message
    cdef const unsigned char* end = p + record.size
    cdef const unsigned char* value
    cdef unsigned char kind
    while True:
        if end - p < 1:
            return False
        kind = p[0]
        if kind == 0:
            return p + 1 == end
        if end - p < 3:
            return False
        value = p + 3
        p = skip_value(value, end, kind, 1)
        if p == NULL:
            return False
        if not record.assigned and kind == 11 and (value - 2)[0] == 0 and (value - 1)[0] == 6:
            record.id = value + 4
            record.id_size = be32(value)


cdef const unsigned char* read_record(const unsigned char* p, const unsigned char* end, Record* record,
                                      bint is_sound) noexcept nogil:
    """The position after the record; NULL when it is malformed or runs past the end.

    Args:
        is_sound: its message was found well-formed before.
    """
    cdef uint32_t size
    if end - p < RECORD_HEAD_SIZE:
        return NULL
    size = le32(p)
    p += 4
    if size < 1 or <uint64_t> size > <uint64_t> (end - p):
        return NULL
    end = p + size
    record.assigned = p[0] & RECORD_HAS_ID
    record.id = p + 1
    record.request = NULL
    if p[0] & RECORD_HAS_SOURCE_OFFSET:
        if size < 1 + SOURCE_OFFSET_SIZE:
            return NULL
        size -= SOURCE_OFFSET_SIZE
    if p[0] & RECORD_HAS_TRAILER:
        if size < 1 + REPLY_TOKEN_SIZE:
            return NULL
        size -= REPLY_TOKEN_SIZE
        record.request = p + size
    if record.assigned:
        if size < 1 + ASSIGNED_ID_SIZE:
            return NULL
        record.id_size = 2 * ASSIGNED_ID_SIZE
        record.message = p + 1 + ASSIGNED_ID_SIZE
        record.size = size - 1 - ASSIGNED_ID_SIZE
        record.is_sound = is_sound or find_id(record)
        return end
    record.id_size = 0
    record.message = p + 1
    record.size = size - 1
    record.is_sound = find_id(record)
    return end


cdef uint32_t fixed_fields(unsigned char* out, PieceView* piece) noexcept nogil:
    """Receipt to stored_at_ms. The receipt's delta and the offset differ per record and are patched."""
    cdef unsigned char* p = out
    cdef uint32_t receipt_size = RECEIPT_SIZE if memcmp(piece.token, no_receipt, TOKEN_SIZE) != 0 else 0
    p[0] = 11; p[1] = 0; p[2] = 1
    put_be32(p + 3, receipt_size)
    memcpy(p + 7, piece.token, TOKEN_SIZE)
    p += 7 + receipt_size
    p[0] = 8; p[1] = 0; p[2] = 2
    put_be32(p + 3, piece.queue)
    p += 7
    p[0] = 10; p[1] = 0; p[2] = 3
    p += 11
    p[0] = 8; p[1] = 0; p[2] = 4
    put_be32(p + 3, piece.attempt)
    p += 7
    p[0] = 10; p[1] = 0; p[2] = 5
    put_be64(p + 3, <uint64_t> piece.stored_at_ms)
    return <uint32_t> (p + 11 - out)


cdef unsigned char* put_id(unsigned char* p, Record* record) noexcept nogil:
    cdef int i
    p[0] = 11; p[1] = 0; p[2] = 6
    put_be32(p + 3, record.id_size)
    p += 7
    if not record.assigned:
        memcpy(p, record.id, record.id_size)
        return p + record.id_size
    for i in range(ASSIGNED_ID_SIZE):
        p[2 * i] = HEX[record.id[i] >> 4]
        p[2 * i + 1] = HEX[record.id[i] & 15]
    return p + 2 * ASSIGNED_ID_SIZE


cdef unsigned char* put_piece(unsigned char* p, PieceView* piece, uint32_t count, bint are_sound,
                              const ReplyKey* key) noexcept nogil:
    """Write the first `count` records of a piece, which `measure` has checked, each as a Delivery.

    Args:
        are_sound: no record has a malformed message. Such records are left out.
    """
    cdef unsigned char[FIXED_MAX] fixed
    cdef uint32_t fixed_size = fixed_fields(fixed, piece)
    cdef bint leased = fixed_size == FIXED_MAX
    cdef const unsigned char *at = piece.records, *source = NULL
    cdef Record record
    cdef uint32_t i, delta
    cdef uint32_t source_size = find_source(key, piece.token, &source)
    for i in range(count):
        at = read_record(at, piece.records + piece.size, &record, are_sound)
        if not record.is_sound:
            continue
        memcpy(p, fixed, fixed_size)
        if leased:
            delta = piece.delta + i
            memcpy(p + 7 + TOKEN_SIZE, &delta, 4)
        p += fixed_size
        put_be64(p - 26, piece.offset + i)
        p = put_id(p, &record)
        p[0] = 12; p[1] = 0; p[2] = 7
        memcpy(p + 3, record.message, record.size)
        p += 3 + record.size
        if record.request != NULL and leased:
            p = put_reply_fields(p, record.request, key)
        if source_size:
            memcpy(p, source, source_size)
            p += source_size
        p[0] = 0
        p += 1
    return p


cdef int measure(const unsigned char* p, const unsigned char* end, uint64_t room, uint64_t* used, uint32_t* given,
                 uint32_t* held, list malformed, const ReplyKey* key) except -1:
    """Count the records that fit into `room` bytes, in order. All pieces are checked either way."""
    cdef uint32_t pieces, i, k, fixed_size, source_size
    cdef const unsigned char *at, *source = NULL
    cdef bint is_full = False
    cdef uint64_t size
    cdef PieceView piece
    cdef Record record
    used[0] = 0
    given[0] = 0
    held[0] = 0
    if end - p < 4:
        raise PayloadError("the answer ends before its piece count")
    pieces = le32(p)
    p += 4
    for i in range(pieces):
        p = read_piece(p, end, &piece)
        if p == NULL:
            raise PayloadError(f"piece {i} of {pieces} runs past the answer")
        fixed_size = FIXED_MAX if memcmp(piece.token, no_receipt, TOKEN_SIZE) != 0 else FIXED_MAX - RECEIPT_SIZE
        source_size = find_source(key, piece.token, &source)
        at = piece.records
        for k in range(piece.count):
            at = read_record(at, p, &record, False)
            if at == NULL:
                raise PayloadError(f"record {k} of {piece.count} in piece {i} is damaged")
            held[0] += 1
            if not record.is_sound:
                if not is_full:
                    malformed.append((i, k))
                    given[0] += 1
                continue
            size = <uint64_t> fixed_size + 7 + record.id_size + 3 + record.size + 1 + source_size
            if record.request != NULL and fixed_size == FIXED_MAX:
                size += REPLY_FIELDS_SIZE
            is_full = is_full or used[0] + size > room
            if not is_full:
                used[0] += size
                given[0] += 1
        if at != p:
            raise PayloadError(f"piece {i} has bytes after its {piece.count} records")
    if p != end:
        raise PayloadError("bytes after the last piece")
    return 0


cdef class Results:
    """The ack results of one reply: measured, then written."""
    cdef const unsigned char* runs
    cdef Py_ssize_t run_count
    cdef const unsigned char* codes
    cdef uint64_t codes_room        # number of codes in the answer from `codes` on
    cdef uint64_t acks
    cdef uint64_t size

    cdef int code_of(self, uint32_t answer) except -1:
        cdef int code
        if answer & LOCAL:
            return answer & 0xffff
        if answer >= self.codes_room:
            raise PayloadError(f"no code for ack range {answer}")
        code = le16(self.codes + 2 * <uint64_t> answer)
        return code | OF_ENGINE if code == CODE_INVALID else code

    cdef int measure(self) except -1:
        cdef Py_ssize_t i
        cdef int code
        cdef uint64_t count, bad = 0, told
        self.acks = self.size = 0
        for i in range(self.run_count):
            count = le32(self.runs + 8 * i)
            code = self.code_of(le32(self.runs + 8 * i + 4))
            self.acks += count
            self.size += 8 * count
            if code != 0:
                told = min(count, sentences_max - bad)
                bad += told
                sentence = ACK_SENTENCES.get(code)
                if sentence is not None:
                    self.size += told * (7 + len(<bytes> sentence))
        return 0

    cdef unsigned char* write(self, unsigned char* p) except NULL:
        cdef Py_ssize_t i, text_size
        cdef int code
        cdef uint64_t count, bad = 0, told
        cdef const unsigned char* text
        for i in range(self.run_count):
            count = le32(self.runs + 8 * i)
            code = self.code_of(le32(self.runs + 8 * i + 4))
            told = text_size = 0
            text = NULL
            if code != 0:
                told = min(count, sentences_max - bad)
                bad += told
                sentence = ACK_SENTENCES.get(code)
                if sentence is not None:
                    text = <const unsigned char*> PyBytes_AS_STRING(sentence)
                    text_size = len(<bytes> sentence)
            p = put_results(p, <uint32_t> (code & ~(REFUSED | OF_ENGINE)), count, told, text, <uint32_t> text_size)
        return p


cdef unsigned char* put_results(unsigned char* p, uint32_t code, uint64_t count, uint64_t told,
                                const unsigned char* text, uint32_t text_size) noexcept nogil:
    cdef uint64_t k
    for k in range(count):
        p[0] = 8; p[1] = 0; p[2] = 1
        put_be32(p + 3, code)
        p += 7
        if k < told and text != NULL:
            p[0] = 11; p[1] = 0; p[2] = 2
            put_be32(p + 3, text_size)
            memcpy(p + 7, text, text_size)
            p += 7 + text_size
        p[0] = 0
        p += 1
    return p


def build_reply(seqid, code, bytes payload not None, Py_ssize_t pieces_at, Py_ssize_t codes_at,
                bytes runs not None, bytes tail not None, uint64_t size_max, bytes reply_key not None=b"",
                bytes sources not None=b""):
    """See deliver.build_reply."""
    cdef const unsigned char* start = <const unsigned char*> PyBytes_AS_STRING(payload)
    cdef Py_ssize_t size = len(payload)
    cdef const unsigned char* end = start + size
    cdef uint64_t used = 0, others
    cdef uint32_t given = 0, held = 0
    cdef Results results = Results()
    cdef list malformed = []
    cdef ReplyKey key
    if not -1 <= pieces_at <= size or not 0 <= codes_at <= size:
        raise PayloadError("a part of the answer starts after its end")
    results.runs = <const unsigned char*> PyBytes_AS_STRING(runs)
    results.run_count = len(runs) // 8
    results.codes = start + codes_at
    results.codes_room = <uint64_t> (size - codes_at) // 2
    results.measure()
    key.data, key.size = <const unsigned char*> PyBytes_AS_STRING(reply_key), <uint32_t> len(reply_key)
    key.sources, key.sources_size = <const unsigned char*> PyBytes_AS_STRING(sources), <uint32_t> len(sources)
    # REPLY header 16, result field 3, code 7, two list headers 8 each, the ends of both structs 2
    others = 16 + 3 + 7 + 8 + 8 + results.size + <uint64_t> len(tail) + 2
    if pieces_at >= 0:
        measure(start + pieces_at, end, size_max - others if size_max > others else 0, &used, &given, &held, malformed,
                &key)
    reply = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> (others + used))
    cdef unsigned char* out = <unsigned char*> PyBytes_AS_STRING(reply)
    cdef unsigned char* p = out
    memcpy(p, <const unsigned char*> b"\x80\x01\x00\x02\x00\x00\x00\x04pull", 12)
    put_be32(p + 12, <uint32_t> (<int64_t> seqid))
    memcpy(p + 16, <const unsigned char*> b"\x0c\x00\x00\x08\x00\x01", 6)
    put_be32(p + 22, <uint32_t> (<int64_t> code))
    memcpy(p + 26, <const unsigned char*> b"\x0f\x00\x02\x0c", 4)
    put_be32(p + 30, given - <uint32_t> len(malformed))
    p += 34
    p = put_pieces(p, start + pieces_at + 4, end, given, not malformed, &key)
    memcpy(p, <const unsigned char*> b"\x0f\x00\x03\x0c", 4)
    put_be32(p + 4, <uint32_t> results.acks)
    p = results.write(p + 8)
    memcpy(p, PyBytes_AS_STRING(tail), len(tail))
    p += len(tail)
    p[0] = 0
    p[1] = 0
    if p + 2 != out + others + used:
        raise PayloadError("the reply is not as long as measured")
    return reply, given, held, malformed


cdef unsigned char* put_pieces(unsigned char* p, const unsigned char* at, const unsigned char* end,
                               uint32_t given, bint are_sound, const ReplyKey* key) noexcept nogil:
    cdef uint32_t take
    cdef PieceView piece
    while given:
        at = read_piece(at, end, &piece)
        take = min(piece.count, given)
        p = put_piece(p, &piece, take, are_sound, key)
        given -= take
    return p
