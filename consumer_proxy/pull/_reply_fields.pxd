# Fields 8 to 10 of a Delivery: of requests the reply token in the form for one application, and the deadline; and the
# source. Reference: common.reply_token.bind_token, and deliver._reply_fields.

from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from common._blake2b cimport penstock_blake2b, penstock_blake2b_finish, penstock_blake2b_start, penstock_blake2b_update
from common.wire._skip cimport le32, le64, put_be32, put_be64
from engine.link.constants cimport REPLY_BY_AT, REPLY_TOKEN_BOUND, REPLY_TOKEN_MAC_AT, REPLY_TOKEN_SIZE

cdef enum:
    REPLY_FIELDS_SIZE = 58
    SOURCE_HEAD_SIZE = 12
    TOKEN_HASH_AT = 8


cdef struct ReplyKey:                 # of the application that pulls
    const unsigned char* data
    uint32_t size
    const unsigned char* sources    # rows of response_fields.SOURCE_HEAD: topic hash, size, field 10 of a Delivery
    uint32_t sources_size


cdef inline uint32_t find_source(const ReplyKey* key, const unsigned char* token, const unsigned char** field) noexcept nogil:
    """Field 10 of a token's deliveries and its size; 0: they have none. Reference: deliver.sources_of.

    Bounds: the rows come from `add_shared_reads`, which makes them whole; token[0..TOKEN_SIZE) is read.
    """
    cdef uint32_t at = 0, size
    while key.sources_size - at >= SOURCE_HEAD_SIZE and at < key.sources_size:
        size = le32(key.sources + at + 8)
        if le64(key.sources + at) == le64(token + TOKEN_HASH_AT):
            field[0] = key.sources + at + SOURCE_HEAD_SIZE
            return size
        at += SOURCE_HEAD_SIZE + size
    return 0


cdef inline unsigned char* put_reply_fields(unsigned char* p, const unsigned char* token, const ReplyKey* key) noexcept nogil:
    """Bounds: token[0..REPLY_TOKEN_SIZE) is read, p[0..REPLY_FIELDS_SIZE) written."""
    cdef penstock_blake2b mac
    p[0] = 11; p[1] = 0; p[2] = 8
    put_be32(p + 3, REPLY_TOKEN_SIZE)
    p += 7
    p[0] = REPLY_TOKEN_BOUND
    memcpy(p + 1, token + 1, REPLY_TOKEN_MAC_AT - 1)
    penstock_blake2b_start(&mac, key.data, 0, REPLY_TOKEN_SIZE - REPLY_TOKEN_MAC_AT)
    penstock_blake2b_update(&mac, key.data, key.size)
    penstock_blake2b_update(&mac, p, REPLY_TOKEN_MAC_AT)
    penstock_blake2b_finish(&mac, p + REPLY_TOKEN_MAC_AT, REPLY_TOKEN_SIZE - REPLY_TOKEN_MAC_AT)
    p += REPLY_TOKEN_SIZE
    p[0] = 10; p[1] = 0; p[2] = 9
    put_be64(p + 3, le64(token + REPLY_BY_AT))
    return p + 11
