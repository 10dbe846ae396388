"""APPEND: durability and a count of batches, then the batches; the answer has one result per batch."""

import struct
from collections.abc import Iterator

APPEND_HEAD = struct.Struct("<B3xI")
"""Durability ‖ batch count."""

APPEND_HEAD_SIZE = 8
APPEND_RESULT = struct.Struct("<HxxIQ")
"""Code ‖ queue, of a DUPLICATE only ‖ base offset."""

APPEND_RESULT_SIZE = 16

MEMORY, FSYNC = 1, 2
DURABILITY_MEMORY, DURABILITY_FSYNC, DURABILITY_REPLICATED, DURABILITY_REPLICATED_FSYNC = 1, 2, 3, 4
DURABILITY_MAX = 4


def encode_append(durability: int, *batches: bytes) -> bytes:
    """Encode an APPEND request; see engine.link.batch for its batches."""
    return APPEND_HEAD.pack(durability, len(batches)) + b"".join(batches)


def read_results(payload: bytes) -> Iterator[tuple[int, int, int]]:
    """(code, queue of a DUPLICATE, base offset) per batch of an answer."""
    return APPEND_RESULT.iter_unpack(payload)
