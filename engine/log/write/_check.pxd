# cython: language_level=3
"""Checking a batch's header and records before it is stored."""
from libc.stdint cimport uint8_t, uint32_t

from engine.link.constants cimport (
    BATCH_CHECK_IDS, BATCH_HEADER_SIZE, BATCH_MAGIC, KIND_FIRED, KIND_MESSAGES, RECORD_HAS_TRAILER, REPLY_TOKEN_SIZE,
)
from engine.link.loads cimport load32
from engine.log.segment._index cimport BatchHeader


cdef inline bint is_well_formed(const unsigned char* batch) noexcept nogil:
    """Whether the header holds and the records' sizes add up to the batch's and to its count.

    The caller has checked that header.size, at least a header, lies within its bytes. Every step stays within the
    `left` bytes, and later readers of a stored batch rely on that: they follow the sizes without checking them again.
    """
    cdef BatchHeader* header = <BatchHeader*>batch
    cdef uint32_t left = header.size - BATCH_HEADER_SIZE
    cdef uint32_t count = 0
    cdef uint32_t record
    cdef const unsigned char* at = batch + BATCH_HEADER_SIZE
    if header.magic != BATCH_MAGIC or header.flags & ~BATCH_CHECK_IDS or header.count == 0:
        return False
    # `reserved` is the id window of a batch with the flag, and 0 in all others.
    if header.flags:
        if header.count != 1 or (header.kind != KIND_MESSAGES and header.kind != KIND_FIRED) or not header.reserved:
            return False
    elif header.reserved:
        return False
    while left:
        if left < 6:
            return False
        record = load32(at)
        # At least a flags byte and a struct's stop byte, after the id when there is one; a trailer follows the message.
        if record > left - 4 or at[4] > 3 or record < 2 + 16 * (at[4] & 1) + REPLY_TOKEN_SIZE * (at[4] >> 1):
            return False
        # A record with a trailer is alone in its batch.
        if at[4] & RECORD_HAS_TRAILER and header.count != 1:
            return False
        at += 4 + record
        left -= 4 + record
        count += 1
    return count == header.count
