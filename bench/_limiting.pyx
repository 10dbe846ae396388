# cython: language_level=3, boundscheck=False, wraparound=False
"""Checks of calls in a C loop, as on the producer proxy's hot path: rate-limit admission alone, or all checks."""

from libc.stdint cimport uint32_t
from libc.string cimport memcmp

from common.limits._meter cimport Meter
from common.limits._queue_limit cimport QueueLimit
from engine.client._destination cimport Destination, Destinations
from producer_proxy.hot._admitted cimport AdmittedCredential
from producer_proxy.hot._admission cimport HotAdmission


def gate_rounds(HotAdmission gate, Meter topic, Meter application, uint32_t messages, uint32_t calls):
    """Check `calls` calls of `messages` messages of 160 bytes; return the number of admitted calls.

    A meter of None: no such limit is set.
    """
    cdef uint32_t i, passed = 0
    cdef double now = 1.0
    for _ in range(calls):
        now += 1e-6
        gate.begin(now)
        for i in range(messages):
            if topic is not None:
                gate.weigh(topic, 160, i)
        if gate.verdict(application, messages, 160 * messages, 160, None) != 0:
            continue
        passed += 1
        gate.commit(application, messages, 160 * messages)
        for i in range(messages):
            if topic is not None:
                topic.commit(gate.call)
    return passed


def all_rounds(HotAdmission gate, AdmittedCredential admitted, Destinations destinations, QueueLimit queue, bytes credential, list topics, uint32_t messages,
               uint32_t calls):
    """As gate_rounds, with all checks of HotConnection.examine and take between walk and append.

    These are credential, grant and destination (consecutive messages have different topics), size, rules, limits, and
    room for the grade. Returns the number of admitted calls.
    """
    cdef uint32_t i, passed = 0
    cdef double now = 1.0
    cdef int grade
    cdef bytes topic
    cdef list chosen = [None] * messages
    cdef Destination destination
    for _ in range(calls):
        now += 1e-6
        if memcmp(<const unsigned char*>credential, <const unsigned char*>admitted.credential, len(credential)) != 0 or now > admitted.expires_at:
            continue
        gate.begin(now)
        grade = 0
        for i in range(messages):
            topic = topics[(passed + i) % len(topics)]
            destination = destinations.find(topic, len(topic)) if admitted.may_send(topic, <uint32_t>len(topic)) else None
            if destination is None or destination.checked_at != 0 or destination.body_bytes_max < 100 or destination.is_special:
                break
            if destination.meter is not None:
                gate.weigh(destination.meter, 160, i)
            grade = max(grade, destination.grade)
            chosen[i] = destination
        else:
            if gate.verdict(admitted.meter, messages, 160 * messages, 160, None) != 0 or not queue.lets_in(100, messages, grade):
                continue
            passed += 1
            gate.commit(admitted.meter, messages, 160 * messages)
            for i in range(messages):
                destination = chosen[i]
                if destination.meter is not None:
                    destination.meter.commit(gate.call)
    return passed
