# cython: language_level=3, boundscheck=False, wraparound=False
"""BYTES of the log's end, from the last write or the file into a slave's output. Reference: `Shipment.next_frame` and `Peer.send_frame`."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.unistd cimport pread

from common.net._connection cimport Connection
from engine.link.constants cimport (
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    FRAME_HEADER_SIZE,
    FRAME_REST_SIZE,
    OP_BYTES,
    SEGMENT_HEADER_SIZE,
)
from engine.log.segment._index cimport BatchHeader
from engine.log.write._append cimport Appender

cdef enum:
    BYTES_HEAD_SIZE = 20                 # u32 epoch, u64 position, u64 confirmed


def send_tail(peer, appender, uint32_t epoch, uint64_t position, uint64_t confirmed, uint64_t bytes_max):
    """Queue one frame with all that the log has from the position on.

    Returns the log's end; 0: nothing was queued, since the bytes are more than one frame takes, are not all in the
    active segment, or cannot be read. The reference sends them, or learns the reason.
    """
    if not isinstance(peer, Connection) or not isinstance(appender, Appender):
        return 0
    return queue_tail(peer, appender, epoch, position, confirmed, bytes_max)


cdef uint64_t queue_tail(
    Connection peer, Appender appender, uint32_t epoch, uint64_t position, uint64_t confirmed, uint64_t bytes_max
) except? 0:
    cdef uint64_t end = appender.end_position
    cdef uint64_t size = end - position
    cdef uint32_t rest = <uint32_t>(FRAME_REST_SIZE + BYTES_HEAD_SIZE + size)
    cdef unsigned char* out
    cdef unsigned char* data
    cdef const unsigned char* written
    if peer.is_closed or appender.fd < 0 or position < appender.segment_base + SEGMENT_HEADER_SIZE or position >= end:
        return 0
    if size > bytes_max or size < BATCH_HEADER_SIZE:
        return 0
    out = peer.out_reserve(FRAME_HEADER_SIZE + BYTES_HEAD_SIZE + size)
    data = out + FRAME_HEADER_SIZE + BYTES_HEAD_SIZE
    written = appender.last_written(position)
    if written != NULL:
        memcpy(data, written, size)
    elif pread(appender.fd, data, size, position - appender.segment_base) != <ssize_t>size:
        return 0
    if (<BatchHeader*>data).magic != BATCH_MAGIC:
        return 0
    memset(out, 0, FRAME_HEADER_SIZE)
    memcpy(out, &rest, 4)
    out[4] = OP_BYTES
    out += FRAME_HEADER_SIZE
    memcpy(out, &epoch, 4)
    memcpy(out + 4, &position, 8)
    memcpy(out + 12, &confirmed, 8)
    peer.out_commit(FRAME_HEADER_SIZE + BYTES_HEAD_SIZE + size)
    return end
