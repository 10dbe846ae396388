# cython: language_level=3
"""Receipt tokens and their MAC, one compression each. Reference: receipt.py."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from engine.link.constants cimport TOKEN_SIZE, TOKEN_VERSION

from engine.delivery.receipt import ReceiptToken

cdef enum:
    BODY_SIZE = TOKEN_SIZE - MAC_SIZE

cdef object new_tuple = tuple.__new__


cdef class Receipts:
    """Native form of Receipts; see the reference."""

    def __init__(self, bytes key not None, str group not None):
        cdef bytes name = group.encode() + b"\0"
        if not 1 <= len(key) <= 64:
            raise ValueError(f"receipt key of {len(key)} bytes: BLAKE2b takes 1 to 64")
        penstock_blake2b_start(&self.keyed, PyBytes_AS_STRING(key), len(key), MAC_SIZE)
        penstock_blake2b_update(&self.keyed, PyBytes_AS_STRING(name), len(name))

    cdef void write(self, TokenBytes* token, uint32_t queue, uint32_t count, uint64_t topic_hash, uint64_t base_offset,
                    uint64_t lease) noexcept:
        cdef penstock_blake2b mac = self.keyed
        token.version = TOKEN_VERSION
        token.zero = 0
        token.queue = <unsigned short>queue
        token.count = count
        token.topic_hash = topic_hash
        token.base_offset = base_offset
        token.lease = lease
        penstock_blake2b_update(&mac, token, BODY_SIZE)
        penstock_blake2b_finish(&mac, token.mac, MAC_SIZE)

    cdef bint is_ours(self, const TokenBytes* token) noexcept:
        cdef penstock_blake2b mac = self.keyed
        cdef uint8_t expected[16]
        cdef uint8_t differing = 0
        cdef int i
        penstock_blake2b_update(&mac, token, BODY_SIZE)
        penstock_blake2b_finish(&mac, expected, MAC_SIZE)
        # All bytes are compared, so that the time of a check tells nothing about a wrong MAC.
        for i in range(MAC_SIZE):
            differing |= expected[i] ^ token.mac[i]
        return differing == 0

    def make(self, uint32_t queue, uint32_t count, uint64_t topic, uint64_t base_offset, uint64_t lease):
        cdef TokenBytes token
        self.write(&token, queue, count, topic, base_offset, lease)
        return (<char*>&token)[:TOKEN_SIZE]

    def check(self, bytes token not None):
        cdef TokenBytes found
        if PyBytes_GET_SIZE(token) != TOKEN_SIZE:
            return None
        memcpy(&found, PyBytes_AS_STRING(token), TOKEN_SIZE)
        if not self.is_ours(&found) or found.version != TOKEN_VERSION:
            return None
        return new_tuple(ReceiptToken, (found.queue, found.count, found.topic_hash, found.base_offset, found.lease))
