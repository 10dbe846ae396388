# cython: language_level=3, boundscheck=False, wraparound=False
"""The gate's questions about calls, again and again, in a C loop as the producer proxy's hot path asks them."""

from libc.stdint cimport uint32_t

from common.limits._meter cimport Meter
from producer_proxy._gate cimport HotGate


def gate_rounds(HotGate gate, Meter topic, Meter application, uint32_t messages, uint32_t calls):
    """`calls` calls of `messages` messages of 160 bytes; returns how many passed whole. A meter that is None is a limit that is not set."""
    cdef uint32_t i, passed = 0
    cdef double now = 1.0
    for _ in range(calls):
        now += 1e-6
        gate.begin(now)
        for i in range(messages):
            if topic is not None:
                gate.weigh(topic, 160, i)
        if gate.verdict(application, messages, 160 * messages, 160) != 0:
            continue
        passed += 1
        gate.commit(application, messages, 160 * messages)
        for i in range(messages):
            if topic is not None:
                topic.commit(gate.call)
    return passed
