"""APPEND: durability and a count of batches, then the batches; the answer has one result per batch, then the log's end.

RESEND is the same after a position: from there on the engine looks for batches that are stored already.
"""

import struct
from collections.abc import Iterator

APPEND_HEAD = struct.Struct("<B3xI")
"""Durability ‖ batch count."""

APPEND_HEAD_SIZE = 8
APPEND_RESULT = struct.Struct("<HxxIQ")
"""Code ‖ queue, of a DUPLICATE only ‖ base offset."""

APPEND_RESULT_SIZE = 16
APPEND_END = struct.Struct("<Q")
"""End of the log when the answer was made. What is sent after it is stored at or above it."""

RESEND_HEAD = struct.Struct("<Q")
"""Position of the log, below which none of the batches can be stored."""

MEMORY, FSYNC, REPLICATED, REPLICATED_FSYNC = 1, 2, 3, 4
DURABILITY_MEMORY, DURABILITY_FSYNC, DURABILITY_REPLICATED, DURABILITY_REPLICATED_FSYNC = 1, 2, 3, 4
DURABILITY_MAX = 4


def encode_append(durability: int, *batches: bytes) -> bytes:
    """Encode an APPEND request; see engine.link.batch for its batches."""
    return APPEND_HEAD.pack(durability, len(batches)) + b"".join(batches)


def read_results(payload: bytes) -> Iterator[tuple[int, int, int]]:
    """(code, queue of a DUPLICATE, base offset) per batch of an answer."""
    return APPEND_RESULT.iter_unpack(payload[: -APPEND_END.size])


def read_end(payload: bytes) -> int:
    """The log's end that an answer tells."""
    return int(APPEND_END.unpack_from(payload, len(payload) - APPEND_END.size)[0])


def encode_resend(position: int, append: bytes) -> bytes:
    """Encode a RESEND of an APPEND's payload."""
    return RESEND_HEAD.pack(position) + append
