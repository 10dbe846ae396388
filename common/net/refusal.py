"""Refusal of a frame by its size: the answer that tells the client, and the count of such frames.

A client library takes a closed connection for a fault of the network and sends the same call again, for ever. So the
call is answered as soon as its first bytes are known.
"""

import logging
import struct

from common.limited_log import LimitedLog

log = LimitedLog(logging.getLogger("penstock.net"))

_HEAD_SIZE = 8  # version and size of the name
_NAME_BYTES_MAX = 64
_EXCEPTION = 0x80010003
_PROTOCOL_ERROR = 7  # TApplicationException's number


def head_size(start: bytes) -> int:
    """Size of the message's head (version, name, sequence id), a lower bound while bytes are missing.

    0: the bytes are not the start of a strict binary message.
    """
    if len(start) < _HEAD_SIZE:
        return _HEAD_SIZE
    name_size = int.from_bytes(start[4:8], "big", signed=True)
    if start[:2] != b"\x80\x01" or not 0 <= name_size <= _NAME_BYTES_MAX:
        return 0
    return _HEAD_SIZE + name_size + 4


def exception_for(head: bytes, sentence: str) -> bytes:
    """The TApplicationException that answers the message with this head."""
    text = sentence.encode()
    return b"".join(
        [
            struct.pack(">I", _EXCEPTION) + head[4:],
            struct.pack(">BHI", 11, 1, len(text)) + text,
            struct.pack(">BHI", 8, 2, _PROTOCOL_ERROR) + b"\0",
        ]
    )


def too_long(size: int, size_max: int) -> str:
    """The sentence for a call above the limit; of an unframed call only a lower bound of its size is known."""
    return (
        f"call of {size} bytes or more: at most {size_max} bytes are allowed: send fewer or smaller messages per call"
    )


def unproved(size: int, size_max: int) -> str:
    """The sentence for a long call of a client whose credential has not verified."""
    return (
        f"call of {size} bytes: a connection's first call above {size_max} bytes needs a valid credential at its start: "
        "check the application, its key and the clock"
    )


class FrameRefusals:
    """Refused frames of the process.

    Attributes:
        count: their number.
    """

    def __init__(self) -> None:
        self.count = 0

    def note(self, peer: str, sentence: str) -> None:
        """Count and log a refused frame."""
        self.count += 1
        log.warning("connection=%s: refused a %s", peer, sentence)


REFUSALS = FrameRefusals()
"""Of all connections of this process."""
