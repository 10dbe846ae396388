# Bytes and MAC of reply tokens: common/reply_token.py.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from common._blake2b cimport penstock_blake2b, penstock_blake2b_finish, penstock_blake2b_start, penstock_blake2b_update
from engine.link.constants cimport REPLY_TOKEN_MAC_AT

cdef enum:
    MAC_SIZE = 16


cdef packed struct ReplyTokenBytes:
    uint8_t version
    uint8_t wait_ms[3]                # little-endian
    uint32_t call
    uint64_t instance
    int64_t reply_by_ms
    uint8_t mac[16]


cdef inline void bound_mac(const ReplyTokenBytes* token, const unsigned char* key, size_t key_size, uint8_t* mac) noexcept nogil:
    """The MAC of a token for the application whose reply key this is."""
    cdef penstock_blake2b state
    penstock_blake2b_start(&state, key, 0, MAC_SIZE)
    penstock_blake2b_update(&state, key, key_size)
    penstock_blake2b_update(&state, token, REPLY_TOKEN_MAC_AT)
    penstock_blake2b_finish(&state, mac, MAC_SIZE)
