"""The bytes that both twins agree on: parts of the link's PULL (docs/design/0001-seams.md section 5) and of the Thrift reply.

Sizes are in bytes; everything of ours is little-endian, Thrift's is big-endian.
"""

import struct

TOKEN_SIZE = 48
RECEIPT_SIZE = 52
TOKEN_VERSION = 1

# token ‖ first offset ‖ first delta ‖ queue ‖ record count ‖ attempt ‖ stored_at_ms ‖ size of the records ‖ 0
PIECE = struct.Struct("<48sQIIIIqII")
# token ‖ first delta ‖ count ‖ verdict ‖ 3 x 0 ‖ delay_ms ‖ size of the reason, which follows
RANGE = struct.Struct("<48sIIB3xiH")
# number of neighbouring acks ‖ what answers them: the index of a range, or LOCAL | code when no range was made
RUN = struct.Struct("<II")
LOCAL = 0x8000_0000

ASSIGNED_ID = 1  # record flag: a 16-byte id follows the flags
ASSIGNED_ID_SIZE = 16
TRAILER = 2  # record flag: a request, whose token is the record's last bytes
TRAILER_SIZE = 40
REPLY_BY_AT = 16  # in the token, 8 bytes of Unix time

DONE, RETRY, REJECT, EXTEND = range(4)
DELAY_UNSET = -1
EXTEND_MS_MAX = 12 * 3600 * 1000
REASON_BYTES_MAX = 1024  # kept with a dead letter; longer ones are cut at a character

# Bytes of a Delivery beside the stored record: with the longest id, and with the receipt that a lease has; a request's token makes
# the record longer by what its two fields take less than that.
DELIVERY_OVERHEAD_MAX = 188
ACK_RESULT_SIZE = 8  # without a sentence
REPLY_BYTES_MAX = 16_384_000  # Apache Thrift's own frame limit

# Sentences cost far more than codes, so a reply to a huge batch of bad acks carries only so many.
ACK_SENTENCES_MAX = 1000
ACK_SENTENCES = {
    100: b"verdict is one of 0..3, delay_ms is at least 0, and EXTEND holds for at most 12 hours",
    106: b"the receipt is not one of ours, or its message has been handed out again",
    203: b"the acknowledgement did not reach the engine; send it again with the next pull",
    300: b"the engine did not answer in time; send the acknowledgement again, twice is harmless",
    400: b"this proxy is shutting down; send the acknowledgement to another one",
}


class DeliverError(Exception):
    """The bytes are not what the seam says. From the engine: our bug or a damaged link, never the client's fault."""
