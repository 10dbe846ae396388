"""LOOK_UP_ID and LOOK_UP_KEY: one slice of a search per request. The answer: a report in JSON, then pieces."""

import json
import struct
from typing import Any

from engine.link.errors import PayloadError
from engine.link.integers import U32
from engine.link.pieces import AnswerPiece, read_pieces


def encode_look_up(from_ms: int, limit: int, following: Any, **wanted: str) -> bytes:
    """Encode a request.

    Args:
        following: `next` of the slice before; None for the first one.
        wanted: topic, and id or key.
    """
    return json.dumps({**wanted, "from_ms": from_ms, "limit": limit, "next": following}).encode()


def decode_look_up_answer(payload: bytes) -> tuple[dict[str, Any], list[AnswerPiece]]:
    """(report with `next`, pieces of one message each). Raises PayloadError."""
    try:
        (size,) = U32.unpack_from(payload)
        return json.loads(payload[4 : 4 + size]), list(read_pieces(payload, 4 + size))
    except (ValueError, TypeError, struct.error, RecursionError) as error:
        raise PayloadError(f"look-up answer: {error}") from error
