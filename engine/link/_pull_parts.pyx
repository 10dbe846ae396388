# cython: language_level=3
"""The bytes of PULL: a request in its parts, whose topics are only measured, and the leases of an answer.

Reference: pull_parts.py.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from engine.link.constants cimport PIECE_SIZE, TOKEN_SIZE, TOPIC_SIZE_MIN

from engine.link.acknowledgement import AckRange
from engine.link.errors import PayloadError
from engine.link.pull_parts import ACKS_END


cdef packed struct AckBytes:
    uint8_t token[48]
    uint32_t first
    uint32_t count
    uint8_t verdict
    uint8_t zero[3]
    int32_t delay_ms
    uint16_t reason_size


cdef packed struct PieceBytes:
    uint8_t token[48]
    uint64_t first_offset
    uint32_t delta
    uint32_t queue
    uint32_t count
    uint32_t attempt
    int64_t stored_at_ms
    uint32_t size
    uint32_t zero


cdef object new_tuple = tuple.__new__
cdef str CUT_OFF = "PULL: the payload is cut off"
cdef bytes NO_REASON = b""
cdef bytes NO_TOKEN = bytes(TOKEN_SIZE)


cdef packed struct LimitBytes:
    int32_t max_messages
    int32_t max_bytes
    int32_t wait_ms
    int32_t invisible_ms
    uint8_t start
    uint8_t zero[3]
    uint32_t ack_count


def split_request(bytes payload not None):
    """A request in its parts; see the reference.

    Bounds: every field is read after a check that it lies before `size`.
    """
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(payload)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
    cdef Py_ssize_t at, end
    cdef uint16_t count
    cdef LimitBytes limits
    cdef list acks
    at = 4 + (data[0] + (<Py_ssize_t>data[1] << 8) if size >= 2 else size)
    if at > size:
        raise PayloadError(CUT_OFF)
    memcpy(&count, data + at - 2, sizeof(count))
    for _ in range(count):
        if size - at < 2:
            raise PayloadError(CUT_OFF)
        at += data[at] + (<Py_ssize_t>data[at + 1] << 8) + TOPIC_SIZE_MIN
    if at > size:
        raise PayloadError("PULL: topics run past the end")
    if size - at < <Py_ssize_t>sizeof(limits):
        raise PayloadError(CUT_OFF)
    memcpy(&limits, data + at, sizeof(limits))
    end = at
    at += sizeof(limits)
    if <int64_t>limits.ack_count * <int64_t>sizeof(AckBytes) > size - at:
        raise PayloadError("PULL: more acknowledgements than bytes")
    acks = read_acks(payload, at, limits.ack_count)
    return (
        payload[:end], limits.max_messages, limits.max_bytes, limits.wait_ms, limits.invisible_ms, limits.start, acks
    )


cdef list read_acks(bytes payload, Py_ssize_t at, Py_ssize_t count):
    cdef const char* data = PyBytes_AS_STRING(payload)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
    cdef AckBytes ack
    cdef list acks = []
    for _ in range(count):
        # Each range is read after a check that its fixed part, then its reason, lies before `size`.
        if size - at < <Py_ssize_t>sizeof(AckBytes):
            raise PayloadError(ACKS_END)
        memcpy(&ack, data + at, sizeof(AckBytes))
        at += sizeof(AckBytes)
        if size - at < ack.reason_size:
            raise PayloadError(ACKS_END)
        reason = data[at : at + ack.reason_size] if ack.reason_size else NO_REASON
        at += ack.reason_size
        token = PyBytes_FromStringAndSize(<char*>ack.token, TOKEN_SIZE)
        acks.append(new_tuple(AckRange, (token, ack.first, ack.count, ack.verdict, ack.delay_ms, reason)))
    if at != size:
        raise PayloadError(ACKS_END)
    return acks


def leases_of(bytes payload not None, Py_ssize_t at, int64_t skip, int verdict):
    """Acknowledgement ranges for the leased records of an answer, and their number; see the reference.

    Bounds: each piece is read after a check that its head, then its records, lie before `size`. `ranges` has room for
    one range per piece, of which there are no more than the payload has heads.
    """
    cdef const char* data = PyBytes_AS_STRING(payload)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
    cdef uint32_t count, number, passed, found = 0
    cdef int64_t records = 0
    cdef PieceBytes piece
    cdef AckBytes* ranges
    if at < 0 or size - at < <Py_ssize_t>sizeof(count):
        raise PayloadError("the answer ends before its piece count")
    memcpy(&count, data + at, sizeof(count))
    at += sizeof(count)
    if <int64_t>count * PIECE_SIZE > size - at:
        raise PayloadError(f"{count} pieces run past the answer")
    ranges = <AckBytes*>malloc(<size_t>(count + 1) * sizeof(AckBytes))
    if ranges == NULL:
        raise MemoryError()
    try:
        for number in range(count):
            if size - at < PIECE_SIZE:
                raise PayloadError(f"piece {number} of {count} runs past the answer")
            memcpy(&piece, data + at, PIECE_SIZE)
            at += PIECE_SIZE
            if piece.size > size - at:
                raise PayloadError(f"piece {number} of {count} runs past the answer")
            at += piece.size
            passed = <uint32_t>min(skip, <int64_t>piece.count)
            skip -= passed
            if passed == piece.count or memcmp(piece.token, <const char*>NO_TOKEN, TOKEN_SIZE) == 0:
                continue
            records += piece.count - passed
            found += add_range(ranges, found, &piece, passed, verdict)
        if at != size:
            raise PayloadError("bytes after the last piece")
        return (<char*>&found)[:sizeof(found)] + (<char*>ranges)[: found * sizeof(AckBytes)], records
    finally:
        free(ranges)


def leases_of_parts(list parts not None, int verdict):
    """Acknowledgement ranges for the pieces of an answer in parts; see the reference.

    Bounds: a head is read only where a whole one is left of its part. The first pass counts the heads, and `ranges` has
    room for one range per head.
    """
    cdef Py_ssize_t heads = 0
    cdef uint32_t found = 0
    cdef AckBytes* ranges
    walk_heads(parts, NULL, verdict, &heads, &found)
    ranges = <AckBytes*>malloc(<size_t>(heads + 1) * sizeof(AckBytes))
    if ranges == NULL:
        raise MemoryError()
    try:
        walk_heads(parts, ranges, verdict, &heads, &found)
        return (<char*>&found)[:sizeof(found)] + (<char*>ranges)[: found * sizeof(AckBytes)]
    finally:
        free(ranges)


cdef int walk_heads(list parts, AckBytes* ranges, int verdict, Py_ssize_t* heads, uint32_t* found) except -1:
    """Count the heads; with `ranges` also add their records."""
    cdef Py_ssize_t at, size, records_left = 0
    cdef bytes part
    cdef PieceBytes piece
    for part in parts:
        size = PyBytes_GET_SIZE(part)
        at = min(records_left, size)
        records_left -= at
        while size - at >= PIECE_SIZE:
            memcpy(&piece, PyBytes_AS_STRING(part) + at, PIECE_SIZE)
            at += PIECE_SIZE
            heads[0] += 1
            if ranges != NULL and piece.count and memcmp(piece.token, <const char*>NO_TOKEN, TOKEN_SIZE) != 0:
                found[0] += add_range(ranges, found[0], &piece, 0, verdict)
            records_left = piece.size - min(<Py_ssize_t>piece.size, size - at)
            at += piece.size - records_left
    return 0


cdef uint32_t add_range(AckBytes* ranges, uint32_t found, const PieceBytes* piece, uint32_t passed, int verdict) noexcept:
    """Add the piece's records but the first `passed`; returns how many ranges that made, 0 when the last one grew."""
    cdef AckBytes* last = &ranges[found]
    cdef uint32_t first = piece.delta + passed
    if (found and <uint64_t>last[-1].first + last[-1].count == first
            and memcmp(last[-1].token, piece.token, TOKEN_SIZE) == 0):
        last[-1].count += piece.count - passed
        return 0
    memset(last, 0, sizeof(AckBytes))
    memcpy(last.token, piece.token, TOKEN_SIZE)
    last.first = first
    last.count = piece.count - passed
    last.verdict = <uint8_t>verdict
    last.delay_ms = -1
    return 1
