"""Pieces: stored records in an answer, each with the lease and attempt of its delivery.

An answer ends with a count of pieces and the pieces. Answers of PULL, READ and look-ups share this part.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from engine.link.errors import PayloadError
from engine.link.integers import U32

PIECE = struct.Struct("<48sQIIIIqII")
"""Token ‖ first offset ‖ first delta ‖ queue ‖ record count ‖ attempt ‖ stored_at_ms ‖ size of the records ‖ 0."""

PIECE_SIZE = 88
_COUNT_AT, _SIZE_AT = 64, 80


class AnswerPiece(NamedTuple):
    """Neighbouring records of one queue.

    Attributes:
        token: of their lease; NO_TOKEN when they are read without one.
        first_delta: number of the first record within its lease.
        records: as stored, see engine.link.record.
    """

    token: bytes
    first_offset: int
    first_delta: int
    queue: int
    count: int  # type: ignore[assignment]
    attempt: int
    stored_at_ms: int
    records: bytes


def encode_pieces(pieces: Iterable[AnswerPiece]) -> bytes:
    """The end of an answer: a count, then the pieces."""
    count, out = 0, [b""]
    for *fields, records in pieces:
        out += (PIECE.pack(*fields, len(records), 0), records)
        count += 1
    out[0] = U32.pack(count)
    return b"".join(out)


def read_pieces(payload: bytes, at: int) -> Iterator[AnswerPiece]:
    """The pieces of an answer whose count is at `at`, one by one. Raises PayloadError unless they fill the payload."""
    if not 0 <= at <= len(payload) - 4:
        raise PayloadError("the answer ends before its piece count")
    (count,) = U32.unpack_from(payload, at)
    at += 4
    for number in range(count):
        if len(payload) - at < PIECE_SIZE:
            raise PayloadError(f"piece {number} of {count} runs past the answer")
        *fields, size, _ = PIECE.unpack_from(payload, at)
        at += PIECE_SIZE
        if size > len(payload) - at:
            raise PayloadError(f"piece {number} of {count} runs past the answer")
        yield AnswerPiece(*fields, payload[at : at + size])  # type: ignore[call-arg]
        at += size
    if at != len(payload):
        raise PayloadError("bytes after the last piece")


class JoinedPieces:
    """Pieces of several answers, in the order in which the answers came. Their records are copied once, at the end.

    Attributes:
        count: number of pieces.
        records: number of records in them.
    """

    def __init__(self) -> None:
        self.count = self.records = 0
        self._parts: list[bytes] = []

    def add(self, payload: bytes, at: int) -> int:
        """Add the pieces from their count on; returns the number of records. Raises PayloadError and adds nothing."""
        if len(payload) - at < U32.size:
            raise PayloadError("the answer ends before its piece count")
        (count,) = U32.unpack_from(payload, at)
        start = at = at + U32.size
        records = 0
        for number in range(count):
            if len(payload) - at < PIECE_SIZE:
                raise PayloadError(f"piece {number} of {count} runs past the answer")
            records += U32.unpack_from(payload, at + _COUNT_AT)[0]
            at += PIECE_SIZE + U32.unpack_from(payload, at + _SIZE_AT)[0]
        if at != len(payload):
            raise PayloadError("the pieces do not fill the answer")
        self.count += count
        self.records += records
        self._parts.append(payload[start:])
        return records

    def encoded(self) -> bytes:
        """The end of the joined answer."""
        return U32.pack(self.count) + b"".join(self._parts)


def leases_in(parts: Iterable[bytes]) -> Iterator[tuple[bytes, int, int]]:
    """(token, number of the first record within its lease, count) of each piece, read over the parts of an answer."""
    records_left = 0
    for part in parts:
        at = min(records_left, len(part))
        records_left -= at
        while at < len(part):
            token, _, first, _, count, _, _, records_left, _ = PIECE.unpack_from(part, at)
            yield token, first, count
            taken = min(records_left, len(part) - at - PIECE_SIZE)
            at, records_left = at + PIECE_SIZE + taken, records_left - taken
