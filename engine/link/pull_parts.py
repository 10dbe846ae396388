"""The bytes of PULL: a request in its parts, whose topics are only measured, and the leases of an answer.

The reference of `_pull_parts.pyx`.
"""

import struct
from collections.abc import Iterable

from engine.link.acknowledgement import ACK, AckRange, AckRanges
from engine.link.errors import PayloadError
from engine.link.integers import U16
from engine.link.pieces import leases_in, read_pieces
from engine.link.receipt import NO_TOKEN

_U32_MAX = 0xFFFFFFFF
TOPIC_SIZE_MIN = 6
"""Size of the name ‖ name ‖ queues."""

PULL_LIMITS = struct.Struct("<iiiiB3xI")
"""max_messages ‖ max_bytes ‖ wait_ms ‖ invisible_ms ‖ start ‖ count of acknowledgement ranges, which follow."""

ACKS_END = "PULL: acknowledgements do not end where the payload does"


def split_request(payload: bytes) -> tuple[bytes, int, int, int, int, int, list[AckRange]]:
    """(group and topics as they came, max_messages, max_bytes, wait_ms, invisible_ms, start, acknowledgements).

    Raises:
        PayloadError: with one sentence. Counts are checked against the bytes that are left before anything is made.
    """
    try:
        at = 4 + U16.unpack_from(payload, 0)[0]
        at = _topics_end(payload, at, U16.unpack_from(payload, at - 2)[0])
        if at > len(payload):
            raise PayloadError("PULL: topics run past the end")
        *limits, ack_count = PULL_LIMITS.unpack_from(payload, at)
    except (IndexError, struct.error) as error:
        raise PayloadError("PULL: the payload is cut off") from error
    head, at = payload[:at], at + PULL_LIMITS.size
    if ack_count * ACK.size > len(payload) - at:
        raise PayloadError("PULL: more acknowledgements than bytes")
    return head, *limits, _read_acks(payload, at, ack_count)


def _topics_end(payload: bytes, at: int, count: int) -> int:
    """Position after the `count` topics that begin at `at`; it may lie after the end. Raises IndexError."""
    for _ in range(count):
        at += payload[at] + (payload[at + 1] << 8) + TOPIC_SIZE_MIN
    return at


def _read_acks(payload: bytes, at: int, count: int) -> list[AckRange]:
    acks = []
    for _ in range(count):
        if len(payload) - at < ACK.size:
            raise PayloadError(ACKS_END)
        token, first, messages, verdict, delay_ms, reason_size = ACK.unpack_from(payload, at)
        at += ACK.size + reason_size
        acks.append(AckRange(token, first, messages, verdict, delay_ms, payload[at - reason_size : at]))
    if at != len(payload):
        raise PayloadError(ACKS_END)
    return acks


def leases_of(payload: bytes, at: int, skip: int, verdict: int) -> tuple[bytes, int]:
    """Acknowledgement ranges for every leased record of an answer but the first `skip`, and the number of the records.

    Neighbouring pieces of one lease share a range.

    Args:
        at: position of the piece count.
    Raises:
        PayloadError: the pieces are damaged.
    """
    ranges: list[AckRange] = []
    records = 0
    for piece in read_pieces(payload, at):
        passed = min(skip, piece.count)
        skip -= passed
        records += _add_range(ranges, piece.token, piece.first_delta + passed, piece.count - passed, verdict)
    return AckRanges.of(ranges).encoded, records


def leases_of_parts(parts: Iterable[bytes], verdict: int) -> bytes:
    """As `leases_of`, for an answer's pieces that are not put together yet: heads and records in turn, or one by one.

    The parts are the caller's own, so their bounds are not checked.
    """
    ranges: list[AckRange] = []
    for token, first, count in leases_in(parts):
        _add_range(ranges, token, first, count, verdict)
    return AckRanges.of(ranges).encoded


def _add_range(ranges: list[AckRange], token: bytes, first: int, count: int, verdict: int) -> int:
    """Add records of a lease, if they are of one; returns their number."""
    if not count or token == NO_TOKEN:
        return 0
    first &= _U32_MAX
    last = ranges[-1] if ranges else None
    if last is not None and last.token == token and last.first + last.count == first:
        ranges[-1] = last._replace(count=last.count + count & _U32_MAX)
    else:
        ranges.append(AckRange(token, first, count, verdict))
    return count
