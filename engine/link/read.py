"""READ: records from positions that the caller keeps. Nothing is leased.

The request is JSON. The answer is a size, one report per position in JSON, then the pieces.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from engine.link.errors import PayloadError
from engine.link.integers import U32
from engine.link.pieces import AnswerPiece, encode_pieces, read_pieces


class ReadPosition(NamedTuple):
    """Range to read in one queue.

    Attributes:
        offset: first offset; it wins over the time. None together with no time: only report.
        end_offset: offset to stop at; None: the end of the queue.
        at_time_ms: Unix time of storing to begin at; -1 for the earliest record, -2 for the end.
    """

    topic: str
    queue: int
    offset: int | None = None
    end_offset: int | None = None
    at_time_ms: int | None = None


class ReadQuestion(NamedTuple):
    """One READ. `max_bytes` 0 takes the engine's default."""

    positions: Sequence[ReadPosition]
    max_messages: int = 32
    max_bytes: int = 0
    wait_ms: int = 0

    def encode(self) -> bytes:
        """Encode the request; fields that are None are left out."""
        positions = [
            {name: value for name, value in each._asdict().items() if value is not None} for each in self.positions
        ]
        return json.dumps({**self._asdict(), "positions": positions}).encode()


def offered_to_slaves(payload: bytes) -> bytes:
    """The encoded READ, which the master may leave to a slave then."""
    return payload[:-1] + b', "slaves": true}'  # an object in JSON ends so


class ReadReport(NamedTuple):
    """Result for one position. Offsets are None where the engine does not know them."""

    code: int
    next_offset: int | None = None
    min_offset: int | None = None
    end_offset: int | None = None
    error: str | None = None


class ReadAnswer:
    """The answer of a READ. Pieces are decoded on demand.

    Attributes:
        payload, pieces_at: where the count of the pieces is.
    """

    __slots__ = ("payload", "pieces_at", "reports")

    def __init__(self, reports: list[ReadReport], payload: bytes, pieces_at: int = 0) -> None:
        self.reports, self.payload, self.pieces_at = reports, payload, pieces_at

    @classmethod
    def of(cls, reports: list[ReadReport], pieces: Iterable[AnswerPiece]) -> "ReadAnswer":
        """Make an answer of values."""
        return cls(reports, encode_pieces(pieces))

    @classmethod
    def decode(cls, payload: bytes) -> "ReadAnswer":
        """Decode an engine's answer. Raises PayloadError; damaged pieces are found when they are read."""
        try:
            (size,) = U32.unpack_from(payload)
            if size > len(payload) - 4:
                raise PayloadError("READ answer: the reports run past the end")
            reports = [_report(each) for each in json.loads(payload[4 : 4 + size])["reports"]]
        except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PayloadError(f"READ answer: the reports cannot be read: {error}") from error
        return cls(reports, payload, 4 + size)

    def pieces(self) -> Iterator[AnswerPiece]:
        """Decode the pieces one by one. Raises PayloadError."""
        return read_pieces(self.payload, self.pieces_at)


def _report(found: dict[str, Any]) -> ReadReport:
    return ReadReport(
        found["code"], found.get("next_offset"), found.get("min_offset"), found.get("end_offset"), found.get("error")
    )
