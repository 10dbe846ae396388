# cython: language_level=3, boundscheck=False, wraparound=False
"""Puts messages into appends in a C loop, as the producer proxy does."""

from libc.stdint cimport uint32_t

from engine.client._append_request cimport Waiter
from engine.client._destination cimport Destination
from engine.client._lane cimport Lane


def add_rounds(Lane lane, list destinations, bytes message, uint32_t a_round, uint32_t rounds):
    """Make `rounds` appends of `a_round` messages, each to the next destination; appends are dropped unsent."""
    cdef Waiter waiter = Waiter()
    cdef const unsigned char* encoded = message
    cdef uint32_t size = <uint32_t>len(message), i, at = 0, count = <uint32_t>len(destinations)
    cdef Destination destination
    cdef unsigned char id16[16]
    id16[:] = b"0123456789abcdef"
    for _ in range(rounds):
        lane.filling.waiters.append(waiter)
        for i in range(a_round):
            destination = <Destination>destinations[at]
            at = at + 1 if at + 1 < count else 0
            lane.add(destination, lane.choose_queue(destination, NULL, -1), id16, encoded, size, NULL, False, i)
        lane.filling.clear()
        lane.append_number += 1
