# cython: language_level=3
"""Checking a batch's header and records before it is stored."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.link.constants cimport (
    ASSIGNED_ID_SIZE, BATCH_CHECK_IDS, BATCH_COPIED, BATCH_HEADER_SIZE, BATCH_MAGIC, KIND_FIRED, KIND_MESSAGES,
    RECORD_HAS_ID, RECORD_HAS_SOURCE_OFFSET, RECORD_HAS_TRAILER, REPLY_TOKEN_SIZE, SOURCE_OFFSET_SIZE,
)
from engine.link.loads cimport load32, load64
from engine.log.segment._index cimport BatchHeader


cdef inline bint are_copied(const unsigned char* batch) noexcept nogil:
    """Whether the records are sound, each with an offset of its source, which grows from one to the next.

    Bounds: as below; a record's trailer lies within it, as its size covers flags, stop byte, id and trailer.
    """
    cdef BatchHeader* header = <BatchHeader*>batch
    cdef uint32_t left = header.size - BATCH_HEADER_SIZE
    cdef uint32_t count = 0
    cdef uint32_t record
    cdef uint64_t next_offset = 0, offset
    cdef const unsigned char* at = batch + BATCH_HEADER_SIZE
    while left:
        if left < 6:
            return False
        record = load32(at)
        if record > left - 4 or at[4] & ~RECORD_HAS_ID != RECORD_HAS_SOURCE_OFFSET:
            return False
        if record < 2 + ASSIGNED_ID_SIZE * (at[4] & RECORD_HAS_ID) + SOURCE_OFFSET_SIZE:
            return False
        at += 4 + record
        left -= 4 + record
        offset = load64(at - SOURCE_OFFSET_SIZE)
        # The last number has no next one.
        if offset < next_offset or offset == <uint64_t>0xFFFFFFFFFFFFFFFF:
            return False
        next_offset = offset + 1
        count += 1
    return count == header.count


cdef inline bint is_well_formed(const unsigned char* batch, bint trusted) noexcept nogil:
    """Whether the header holds and the records' sizes add up to the batch's and to its count.

    The caller has checked that header.size, at least a header, lies within its bytes. Every step stays within the
    `left` bytes, and later readers of a stored batch rely on that: they follow the sizes without checking them again.
    """
    cdef BatchHeader* header = <BatchHeader*>batch
    cdef uint32_t left = header.size - BATCH_HEADER_SIZE
    cdef uint32_t count = 0
    cdef uint32_t record
    cdef const unsigned char* at = batch + BATCH_HEADER_SIZE
    if header.magic != BATCH_MAGIC or header.count == 0:
        return False
    if header.flags & ~BATCH_CHECK_IDS:
        # Copied records come by the engine's own hands: it has compared their source with the queue's.
        return (
            trusted and header.flags == BATCH_COPIED and header.kind == KIND_MESSAGES and header.reserved != 0
            and are_copied(batch)
        )
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
