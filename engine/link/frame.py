"""Frames: a header of 16 bytes, then the operation's payload. Versions and size limits of a link."""

import struct

HEADER = struct.Struct("<IBBHII")
"""Size of what follows the size field ‖ operation ‖ flags ‖ code ‖ request id ‖ epoch."""

FRAME_HEADER_SIZE = HEADER_SIZE = 16
FRAME_REST_SIZE = 12
"""The part of the header that the size field counts."""

FRAME_BYTES_MAX = 32 << 20
STRANGER_BYTES_MAX = 16 << 10
"""Limit of a frame until the other end has proved that it knows the cluster key: several times the largest HELLO."""

VERSION = 2

UNASKED = 0
"""Request id of frames that an engine sends by itself; clients count theirs from 1."""


def frame(op: int, request_id: int, payload: bytes, code: int = 0, epoch: int = 0) -> bytes:
    """Encode one whole frame."""
    return HEADER.pack(FRAME_REST_SIZE + len(payload), op, 0, code, request_id, epoch) + payload
