"""Python interface of the native walker `_walk`. Reference: walk.py, with the same functions and results."""

from cpython.mem cimport PyMem_Free, PyMem_Malloc

from common.wire cimport _walk
from common.wire import calls
from common.wire.faults import WireError


def walk_header(bytes frame not None):
    cdef _walk.Header header
    if _walk.walk_header(frame, len(frame), &header):
        raise WireError(header.error, header.error_at, header.error_field, header.seqid)
    return frame[header.name_start : header.name_start + header.name_size].decode(), header.seqid, header.kind


cdef object message_object(bytes frame, _walk.Message* m):
    return calls.Message(
        frame, m.start, m.size, m.flags, m.fault, m.topic_start, m.topic_size, m.body_start, m.body_size,
        m.key_start, m.key_size, m.tag_start, m.tag_size, m.id_start, m.id_size, m.reply_to_start, m.reply_to_size,
        m.operation, m.deliver_at_ms, m.delay_ms,
    )


def walk_send(bytes frame not None, *, unsigned int messages_max=calls.MESSAGES_MAX, unsigned int body_bytes_max=calls.BODY_BYTES_MAX):
    cdef _walk.SendCall c
    cdef unsigned int i
    cdef _walk.Message* messages = <_walk.Message*>PyMem_Malloc(messages_max * sizeof(_walk.Message))
    if messages == NULL:
        raise MemoryError
    try:
        if _walk.walk_send(frame, len(frame), &c, messages, messages_max, body_bytes_max):
            raise WireError(c.error, c.error_at, c.error_field, c.seqid)
        return calls.SendCall(
            frame, c.seqid, c.credential_start, c.credential_size, c.timeout_ms, c.durability, c.reply_wait_ms, c.fault,
            [message_object(frame, messages + i) for i in range(c.message_count)],
        )
    finally:
        PyMem_Free(messages)


cdef object ack_object(bytes frame, _walk.Ack* a):
    return calls.Ack(
        frame, a.flags, a.fault, a.receipt_start, a.receipt_size, a.verdict, a.delay_ms, a.reason_start, a.reason_size
    )


def walk_pull(bytes frame not None, *, unsigned int acks_max=calls.ACKS_MAX):
    cdef _walk.PullCall c
    cdef unsigned int i
    cdef _walk.Ack* acks = <_walk.Ack*>PyMem_Malloc(acks_max * sizeof(_walk.Ack))
    if acks == NULL:
        raise MemoryError
    try:
        if _walk.walk_pull(frame, len(frame), &c, acks, acks_max):
            raise WireError(c.error, c.error_at, c.error_field, c.seqid)
        return calls.PullCall(
            frame, c.seqid, c.credential_start, c.credential_size, c.group_start, c.group_size, c.flags, c.fault,
            c.max_messages, c.max_bytes, c.wait_ms, c.invisible_ms, c.position_count,
            [(c.topics[i].start, c.topics[i].size) for i in range(c.topic_count)],
            [ack_object(frame, acks + i) for i in range(c.ack_count)],
        )
    finally:
        PyMem_Free(acks)


def valid_name(bytes name not None):
    return bool(_walk.valid_name(name, len(name)))


def murmur2(bytes key not None):
    return _walk.murmur2(key, len(key))
