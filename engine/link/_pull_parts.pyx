# cython: language_level=3
"""The parts of a PULL request that repeat: topics, which are only measured, and acknowledgement ranges.

Reference: pull_parts.py.
"""
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from engine.link.constants cimport TOKEN_SIZE, TOPIC_SIZE_MIN

from engine.link.acknowledgement import AckRange


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
    """Position after the `count` topics that begin at `at`; -1 when they run past the end."""
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(payload)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
    for _ in range(count):
        # `at` may have run past the end by one topic's name; the difference is then negative and nothing is read.
        if size - at < TOPIC_SIZE_MIN:
            return -1
        at += data[at] + (<Py_ssize_t>data[at + 1] << 8) + TOPIC_SIZE_MIN
    return at if at <= size else -1


def read_acks(bytes payload not None, Py_ssize_t at, Py_ssize_t count):
    """The `count` ranges from `at` on; None unless they end where the payload does."""
    cdef const char* data = PyBytes_AS_STRING(payload)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
    cdef AckBytes ack
    acks = []
    for _ in range(count):
        # Each range is read after a check that its fixed part, then its reason, lies before `size`.
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
