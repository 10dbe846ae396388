"""Parts of the Thrift reply on which both forms of its builder agree. Sizes in bytes; Thrift is big-endian."""

import struct

RUN = struct.Struct("<II")
"""Number of neighbouring acks ‖ their answer: the index of a range, or LOCAL | code when no range was made."""

LOCAL = 0x8000_0000

EXTEND_MS_MAX = 12 * 3600 * 1000
REASON_BYTES_MAX = 1024
"""Of a reason, which is kept with a dead letter; longer ones are cut at a character."""

DELIVERY_OVERHEAD_MAX = 188
"""Of a Delivery beside the stored record, with the longest id and a receipt. A request's token makes the record longer by
more than its two fields take."""

ACK_RESULT_SIZE = 8
"""Without a sentence."""

REPLY_BYTES_MAX = 16_384_000
"""Apache Thrift's own frame limit."""

ACK_SENTENCES_MAX = 1000
"""Per reply. Sentences cost far more than codes, and a batch of bad acknowledgements may be huge."""

ACK_SENTENCES = {
    100: b"verdict: 0 to 3; delay_ms: at least 0; EXTEND: for at most 12 hours",
    106: b"the receipt is unknown, or its message was redelivered meanwhile",
    203: b"the acknowledgement did not reach the engine: send it again with the next pull",
    300: b"the engine did not answer in time: send the acknowledgement again, repeating it is harmless",
    400: b"this proxy is shutting down: send the acknowledgement to another one",
}
