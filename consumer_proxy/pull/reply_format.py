"""Parts of the Thrift reply on which both forms of its builder agree. Sizes in bytes; Thrift is big-endian."""

import struct

from common.contract import Code

RUN = struct.Struct("<II")
"""Number of neighbouring acks ‖ their answer: the index of a range, or LOCAL | code when no range was made."""

LOCAL = 0x8000_0000

EXTEND_MS_MAX = 12 * 3600 * 1000
REASON_BYTES_MAX = 1024
"""Maximum size of a reason, which is kept with a dead letter; longer ones are cut at a character."""

DELIVERY_OVERHEAD_MAX = 188
"""Maximum size of a Delivery without the stored record, with the longest id and a receipt.

A request's two fields need no more: its token makes the record longer by more than they take. During a dual read a
Delivery has its source, too, so fewer may fit into a reply; what does not fit is given back.
"""

ACK_RESULT_SIZE = 8
"""Size of an AckResult without a sentence."""

REPLY_BYTES_MAX = 16_384_000
"""Frame limit of Apache Thrift."""

ACK_SENTENCES_MAX = 1000
"""Sentences per reply. They cost far more than codes, and a batch of bad acknowledgements may be huge."""

ACK_SENTENCES = {
    100: b"verdict: 0 to 4; delay_ms: at least 0; EXTEND: for at most 12 hours",
    106: b"the receipt is unknown, or its message was redelivered meanwhile",
    203: b"the acknowledgement did not reach the engine: send it again with the next pull",
    205: b"the engine's disk is full: send the acknowledgement again with the next pull",
    300: b"the engine did not answer in time: send the acknowledgement again, repeating it is harmless",
    400: b"this proxy is shutting down: send the acknowledgement to another one",
}

REFUSED = 0x4000
"""Added to the code of an ack that was not looked at, because its pull was refused before. Not sent."""

OF_ENGINE = 0x2000
"""Added to INVALID of the engine: the proxy has checked verdict and delay before. Not sent."""

ACK_SENTENCES[OF_ENGINE | Code.INVALID] = (
    b"a dead letter cannot be rejected, as it is one already: use DONE to drop it, RETRY to have it again"
)

ACK_SENTENCES |= {
    REFUSED | code: b"not looked at, because the pull was refused: its own error says why"
    for code in Code._VALUES_TO_NAMES
    if code and code not in (203, 205, 300, 400)
}
