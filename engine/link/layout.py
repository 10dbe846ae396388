"""Frame header, operations, codes and the fixed parts of the payloads (docs/design/0001-seams.md section 5).

All little-endian. Sizes in bytes.
"""

import struct

HEADER = struct.Struct("<IBBHII")  # size of what follows the size field ‖ op ‖ flags ‖ code ‖ request id ‖ epoch
HEADER_SIZE = 16
FRAME_BYTES_MAX = 32 << 20
VERSION = 1

HELLO, AUTH, APPEND, TOPIC, PULL, READ, ADMIN = 1, 2, 10, 11, 20, 21, 30
TIMER_ADD, TIMER_CANCEL, TIMER_LIST = 40, 41, 42
CANCEL = 22  # its request id is that of a waiting PULL or READ, which is then answered at once with what it has
LOOK_UP_ID, LOOK_UP_KEY = 50, 51
LEASE, DEPTH = 60, 61  # slices of cluster-wide limits; who is too far behind (docs/design/0014-limits.md)

# Request-reply: docs/design/0013-request-reply.md
REPLY, FORWARD, LISTEN, FORWARDED, OUTCOME = 45, 46, 47, 48, 49

OK = 0
DUPLICATE = 2
INVALID = 100
TOO_LARGE = 101
UNKNOWN_TOPIC = 102
UNAUTHENTICATED = 104
STALE_RECEIPT = 106
OFFSET_OUT_OF_RANGE = 107
NOT_CANCELLABLE = 108
OVERLOADED = 201
UNAVAILABLE = 203
TIMEOUT = 300
SHUTTING_DOWN = 400
NO_CONSUMER, NO_REPLY, CONSUMER_FAILED = 500, 501, 502

MEMORY, FSYNC = 1, 2
APPEND_HEAD = struct.Struct("<B3xI")  # durability ‖ batch count
APPEND_RESULT = struct.Struct("<HxxIQ")  # code ‖ queue, of a DUPLICATE only ‖ base offset
BATCH_HEADER_SIZE = 48
CHECK_IDS = 1  # flag of a batch of one message: DUPLICATE if the topic has had its id within the window (ms) that the header names

DONE, RETRY, REJECT, EXTEND = range(4)
EARLIEST, LATEST, AT_TIME = 0, 1, 2

U16 = struct.Struct("<H")
U32 = struct.Struct("<I")
PULL_LIMITS = struct.Struct("<iiiiB3xI")  # max_messages ‖ max_bytes ‖ wait_ms ‖ invisible_ms ‖ start ‖ ack count
ACK = struct.Struct("<48sIIB3xiH")  # token ‖ first ‖ count ‖ verdict ‖ delay_ms ‖ size of the reason, which follows
# token ‖ first offset ‖ first delta ‖ queue ‖ record count ‖ attempt ‖ stored_at_ms ‖ size of the records ‖ 0
PIECE = struct.Struct("<48sQIIIIqII")

TOKEN = struct.Struct("<BxHIQQQ")  # version ‖ queue ‖ count ‖ topic hash ‖ base offset ‖ lease; the MAC follows
TOKEN_SIZE = 48
TOKEN_VERSION = 1
MAC_SIZE = 16
NO_TOKEN = bytes(TOKEN_SIZE)

HAS_ID, HAS_TRAILER = 1, 2
"""Flags of a stored record: 16 bytes of assigned id in front of the message, a request's trailer behind it."""
FORWARD_HEAD = struct.Struct("<IHxx")  # number ‖ code; the token and the reply follow
FORWARDED_BODY = struct.Struct("<IH")  # number ‖ code
INSTANCE = struct.Struct("<Q")
UNASKED = 0
"""Request id of what an engine sends by itself; clients count theirs from 1."""
RECEIPT_SIZE = 52

STRANGER_BYTES_MAX = 64 << 10
"""Frame limit until the other end has proved that it knows the cluster key."""

AUTH_CONTEXT = b"penstock-link/1\n"


def frame(op: int, request_id: int, payload: bytes, code: int = 0, epoch: int = 0) -> bytes:
    """One whole frame."""
    return HEADER.pack(HEADER_SIZE - 4 + len(payload), op, 0, code, request_id, epoch) + payload
