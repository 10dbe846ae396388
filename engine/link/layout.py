"""Operations, codes and structs of the link in one namespace, for modules that use many of them: `layout.NAME`."""

from engine.link.acknowledgement import ACK, DONE, EXTEND, REJECT, RELEASE, RETRY
from engine.link.append import APPEND_END, APPEND_HEAD, APPEND_RESULT, FSYNC, MEMORY
from engine.link.batch import BATCH_HEADER_SIZE, CHECK_IDS
from engine.link.codes import (
    CLAIMED,
    CONSUMER_FAILED,
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    NO_CONSUMER,
    NO_REPLY,
    NOT_CANCELLABLE,
    NOT_MASTER,
    OFFSET_OUT_OF_RANGE,
    OK,
    OVERLOADED,
    QUOTA_EXCEEDED,
    SHUTTING_DOWN,
    STALE_EPOCH,
    STALE_RECEIPT,
    TIMEOUT,
    TOO_LARGE,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNKNOWN_TOPIC,
)  # fmt: skip
from engine.link.frame import (
    FRAME_BYTES_MAX,
    HEADER,
    HEADER_SIZE,
    STRANGER_BYTES_MAX,
    UNASKED,
    VERSION,
    frame,
)  # fmt: skip
from engine.link.integers import U16, U32
from engine.link.operations import (
    ADMIN,
    APPEND,
    AUTH,
    BYTES,
    CANCEL,
    CLAIM,
    DEPTH,
    FETCH,
    FOLLOW,
    FORWARD,
    FORWARDED,
    HELLO,
    LEASE,
    LISTEN,
    LOOK_UP_ID,
    LOOK_UP_KEY,
    OUTCOME,
    PULL,
    READ,
    RECORD,
    REPLY,
    REPORT,
    RESEND,
    SEGMENT,
    STORED,
    TIMER_ADD,
    TIMER_CANCEL,
    TIMER_LIST,
    TOPIC,
    WINDOW,
)  # fmt: skip
from engine.link.pieces import PIECE
from engine.link.pull import AT_TIME, EARLIEST, LATEST
from engine.link.receipt import MAC_SIZE, NO_TOKEN, RECEIPT_SIZE, TOKEN, TOKEN_SIZE, TOKEN_VERSION
from engine.link.record import HAS_ID, HAS_TRAILER
from engine.link.reply import FORWARD_HEAD, FORWARDED_BODY, INSTANCE

__all__ = [
    "ACK", "ADMIN", "APPEND", "APPEND_END", "APPEND_HEAD", "APPEND_RESULT", "AT_TIME", "AUTH", "BATCH_HEADER_SIZE", "BYTES",
    "CANCEL", "CHECK_IDS", "CLAIM", "CLAIMED", "CONSUMER_FAILED", "DEPTH",
    "DONE", "DUPLICATE", "EARLIEST", "EXTEND", "FETCH", "FOLLOW", "FORBIDDEN", "FORWARD",
    "FORWARDED", "FORWARDED_BODY", "FORWARD_HEAD", "FRAME_BYTES_MAX", "FSYNC", "HAS_ID", "HAS_TRAILER", "HEADER",
    "HEADER_SIZE", "HELLO", "INSTANCE", "INVALID", "LATEST", "LEASE", "LISTEN", "LOOK_UP_ID", "LOOK_UP_KEY", "MAC_SIZE",
    "MEMORY", "NOT_CANCELLABLE", "NOT_MASTER", "NO_CONSUMER", "NO_REPLY", "NO_TOKEN", "OFFSET_OUT_OF_RANGE", "OK", "OUTCOME",
    "OVERLOADED", "PIECE", "PULL", "QUOTA_EXCEEDED", "READ", "RECEIPT_SIZE", "RECORD", "REJECT", "RELEASE", "REPLY", "REPORT",
    "RESEND", "RETRY", "SEGMENT", "SHUTTING_DOWN", "STALE_EPOCH", "STALE_RECEIPT", "STORED",
    "STRANGER_BYTES_MAX", "TIMEOUT", "TIMER_ADD", "TIMER_CANCEL", "TIMER_LIST", "TOKEN", "TOKEN_SIZE",
    "TOKEN_VERSION", "TOO_LARGE", "TOPIC", "U16", "U32", "UNASKED", "UNAUTHENTICATED", "UNAVAILABLE", "UNKNOWN_TOPIC",
    "VERSION", "WINDOW", "frame",
]  # fmt: skip
