"""The parts of PULL that repeat: topics, which are only measured, acknowledgement ranges, and the leases of an answer.

The reference of `_pull_parts.pyx`.
"""

from engine.link.acknowledgement import ACK, AckRange, AckRanges
from engine.link.pieces import read_pieces
from engine.link.receipt import NO_TOKEN

_U32_MAX = 0xFFFFFFFF
TOPIC_SIZE_MIN = 6
"""Size of the name ‖ name ‖ queues."""


def topics_end(payload: bytes, at: int, count: int) -> int:
    """Position after the `count` topics that begin at `at`; -1 when they run past the end."""
    for _ in range(count):
        if len(payload) - at < TOPIC_SIZE_MIN:
            return -1
        at += payload[at] + (payload[at + 1] << 8) + TOPIC_SIZE_MIN
    return at if at <= len(payload) else -1


def read_acks(payload: bytes, at: int, count: int) -> list[AckRange] | None:
    """The `count` ranges from `at` on; None unless they end where the payload does."""
    acks = []
    for _ in range(count):
        if len(payload) - at < ACK.size:
            return None
        token, first, messages, verdict, delay_ms, reason_size = ACK.unpack_from(payload, at)
        at += ACK.size + reason_size
        acks.append(AckRange(token, first, messages, verdict, delay_ms, payload[at - reason_size : at]))
    return acks if at == len(payload) else None


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
        first, left = piece.first_delta + passed & _U32_MAX, piece.count - passed
        if not left or piece.token == NO_TOKEN:
            continue
        records += left
        last = ranges[-1] if ranges else None
        if last is not None and last.token == piece.token and last.first + last.count == first:
            ranges[-1] = last._replace(count=last.count + left & _U32_MAX)
        else:
            ranges.append(AckRange(piece.token, first, left, verdict))
    return AckRanges.of(ranges).encoded, records
