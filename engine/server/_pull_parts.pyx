# cython: language_level=3
"""PULL's two parts that repeat: the topics, which are only measured, and the acknowledgements. Twin: pull_parts_pure.py."""
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from engine.delivery.pull import AckRange

cdef enum:
    TOPIC_LEAST = 6
    TOKEN_SIZE = 48


cdef packed struct AckBytes:
    uint8_t token[48]
    uint32_t first
    uint32_t count
    uint8_t verdict
    uint8_t zero[3]
    int32_t delay_ms
    uint16_t reason_size


cdef object new_tuple = tuple.__new__
cdef bytes NO_REASON = b""


def topics_end(bytes payload not None, Py_ssize_t at, Py_ssize_t count):
    """Where the `count` topics end that begin at `at`; -1 when they run past the end."""
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(payload)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
    for _ in range(count):
        if size - at < TOPIC_LEAST:
            return -1
        at += data[at] + (<Py_ssize_t>data[at + 1] << 8) + TOPIC_LEAST
    return at if at <= size else -1


def read_acks(bytes payload not None, Py_ssize_t at, Py_ssize_t count):
    """The `count` acknowledgements from `at` on, which have to end where the payload does; None when they do not."""
    cdef const char* data = PyBytes_AS_STRING(payload)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
    cdef AckBytes ack
    acks = []
    for _ in range(count):
        if size - at < <Py_ssize_t>sizeof(AckBytes):
            return None
        memcpy(&ack, data + at, sizeof(AckBytes))
        at += sizeof(AckBytes)
        if size - at < ack.reason_size:
            return None
        reason = data[at : at + ack.reason_size] if ack.reason_size else NO_REASON
        at += ack.reason_size
        token = PyBytes_FromStringAndSize(<char*>ack.token, TOKEN_SIZE)
        acks.append(new_tuple(AckRange, (token, ack.first, ack.count, ack.verdict, ack.delay_ms, reason)))
    return acks if at == size else None
