# cython: language_level=3, boundscheck=False, wraparound=False
"""Answers to sends: a SendResponse as a framed or buffered REPLY, in the connection's output. Fields are in the order
of their ids.

Bounds: the output is first reserved for an upper bound of the answer's size. All writes lie within it.
"""

from libc.string cimport memcpy

from common.net._connection cimport Connection
from common.net._frames cimport PROTOCOL_FRAMED
from engine.link.constants cimport CODE_DUPLICATE, CODE_OK
from producer_proxy.hot._bytes cimport put_be32, put_be64
from producer_proxy.targets._kafka_lane cimport no_place

cdef enum:
    ANSWER_BYTES = 128                # of one result, beside its id, sentence and reply
    HEAD_BYTES = 27                   # up to the first result


cdef int encode_results(Connection connection, int32_t seqid, uint32_t count, const Result* results, const unsigned char* ids,
                        dict sentences, dict told, dict codes, int32_t retry_after_ms, object figures, bytes topic,
                        str application) except -1:
    """The answer to a plain send.

    Args:
        ids: bytes of the results' ids. sentences: by code. told: by index, in place of those; may be None. codes: counts by code, except of OK.
        figures: told of each refused message's topic; None: nobody is. topic: of all messages; None: they have several.
        application: that sent them.
    """
    cdef const Result* r
    cdef uint32_t i
    cdef size_t bound = 40
    cdef unsigned char* out
    cdef unsigned char* start
    cdef int head = 4 if connection.protocol == PROTOCOL_FRAMED else 0
    for i in range(count):
        bound += 48 + results[i].id_size
        if results[i].code:
            bound += 7 + len(sentence_of(i, results[i].code, sentences, told))
    start = connection.out_reserve(bound + head)
    out = put_head(start + head, seqid, count)
    for i in range(count):
        r = &results[i]
        out = put_code(out, r.code)
        if r.id_size:
            out = put_string(out, 2, ids + r.id_at, r.id_size)
        if r.code:
            codes[r.code] = codes.get(r.code, 0) + 1
            if r.code != CODE_DUPLICATE and topic is not None and figures is not None:
                figures.refused(topic, r.code, application)
        if r.code == CODE_OK or r.code == CODE_DUPLICATE:
            out = put_place(out, r.queue, r.offset)
        else:
            out = put_error(out, r.code, retry_after_ms, sentence_of(i, r.code, sentences, told))
        out[0] = 0
        out += 1
    return finish(connection, start, out, head)


cdef int encode_result(Connection connection, int32_t seqid, int32_t code, bytes shown_id, uint32_t queue, int64_t offset,
                       int32_t retry_after_ms, bytes sentence, bytes reply) except -1:
    """The answer to a request or a reply.

    Args:
        offset: negative: the message is not stored. reply: a Message's fields with their STOP.
    """
    cdef Py_ssize_t size = ANSWER_BYTES + size_of(shown_id) + size_of(sentence) + size_of(reply)
    cdef int head = 4 if connection.protocol == PROTOCOL_FRAMED else 0
    cdef unsigned char* start = connection.out_reserve(size)
    cdef unsigned char* out = put_code(put_head(start + head, seqid, 1), code)
    if shown_id is not None:
        out = put_string(out, 2, shown_id, len(shown_id))
    if offset >= 0:
        out = put_place(out, queue, offset)
    out = put_error(out, code, retry_after_ms, sentence)
    if reply is not None:
        memcpy(out, b"\x0c\x00\x07", 3)
        memcpy(out + 3, <const unsigned char*>reply, len(reply))
        out += 3 + len(reply)
    out[0] = 0
    return finish(connection, start, out + 1, head)


cdef bytes sentence_of(uint32_t index, int32_t code, dict sentences, dict told):
    cdef object found = None if told is None else told.get(index)
    return sentences.get(code, b"") if found is None else found


cdef Py_ssize_t size_of(bytes text) except -1:
    return 0 if text is None else len(text)


cdef unsigned char* put_head(unsigned char* out, int32_t seqid, uint32_t count) noexcept:
    put_be32(out, 0x80010002)
    put_be32(out + 4, 4)
    memcpy(out + 8, b"send", 4)
    put_be32(out + 12, seqid)
    memcpy(out + 16, b"\x0c\x00\x00\x0f\x00\x01\x0c", 7)
    put_be32(out + 23, count)
    return out + HEAD_BYTES


cdef unsigned char* put_code(unsigned char* out, int32_t code) noexcept:
    memcpy(out, b"\x08\x00\x01", 3)
    put_be32(out + 3, code)
    return out + FIELD_HEAD


cdef unsigned char* put_place(unsigned char* out, uint32_t queue, int64_t offset) noexcept:
    memcpy(out, b"\x08\x00\x03", 3)
    put_be32(out + 3, queue)
    if offset == no_place():
        return out + FIELD_HEAD
    memcpy(out + 7, b"\x0a\x00\x04", 3)
    put_be64(out + 10, offset)
    return out + 18


cdef unsigned char* put_error(unsigned char* out, int32_t code, int32_t retry_after_ms, bytes sentence) except NULL:
    if 200 <= code < 300:
        memcpy(out, b"\x08\x00\x05", 3)
        put_be32(out + 3, retry_after_ms)
        out += 7
    return out if sentence is None else put_string(out, 6, sentence, len(sentence))


cdef unsigned char* put_string(unsigned char* out, int field, const unsigned char* text, Py_ssize_t size) noexcept:
    out[0], out[1], out[2] = 11, 0, field
    put_be32(out + 3, <uint32_t>size)
    memcpy(out + FIELD_HEAD, text, size)
    return out + FIELD_HEAD + size


cdef int finish(Connection connection, unsigned char* start, unsigned char* out, int head) except -1:
    """The STOPs of the response and of the reply around it, and the frame's size."""
    out[0] = out[1] = 0
    out += 2
    if head:
        put_be32(start, <uint32_t>(out - start - 4))
    return connection.out_commit(out - start)
