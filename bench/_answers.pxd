"""Fields that the generator reads from an answer, for cimport by the load loop."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from bench._bytes cimport Buffer
from bench._histogram cimport Counts

cdef enum:
    CODES = 600                        # above all contract codes; unknown ones count in the last place

cdef enum Kind:
    BROKEN = -1                        # no answer to this call: wrong framing, name, sequence number or types
    ANSWER = 0
    EXCEPTION = 1                      # a TApplicationException; its text is in the frame

cdef struct SendTally:
    uint64_t codes[600]
    uint32_t results                   # of the last answer

cdef struct PullTally:
    uint64_t codes[600]                # of whole pulls
    uint64_t ack_codes[600]
    uint64_t deliveries
    uint64_t bytes                     # of bodies
    uint64_t redelivered               # attempt above 1
    uint64_t wrong_size                # body is not of the size that this run sends
    uint32_t last_deliveries           # of the last answer
    int32_t last_code

cdef struct PullNotes:
    Buffer* acks                       # receives one encoded Ack per delivery; NULL: do not acknowledge
    uint32_t ack_count
    int64_t body_size                  # -1: any
    uint64_t mark                      # bodies that begin with it carry their send time after it; 0: none do
    int64_t now_ns
    int64_t since_ns                   # messages sent earlier are not of the measured window
    Counts* end_to_end

cdef Kind walk_send_answer(const uint8_t* frame, size_t size, uint32_t seqid, SendTally* tally) noexcept nogil
cdef Kind walk_pull_answer(
    const uint8_t* frame, size_t size, uint32_t seqid, PullTally* tally, PullNotes* notes
) noexcept nogil
