"""What the proxy says on the link about pulls, in the bytes of docs/design/0001-seams.md section 5."""

import struct

from consumer_proxy.pull.deliver import NO_RECEIPT, read_pieces
from consumer_proxy.pull.layout import RANGE, RETRY

_LIMITS = struct.Struct("<iiiiB3x")  # max_messages ‖ max_bytes ‖ wait_ms ‖ invisible_ms ‖ start
NO_TOPICS = struct.pack("<H", 0)
NO_ACKS = struct.pack("<I", 0)


def encode_topics(queues: dict[str, int]) -> bytes:
    """The topics of a PULL request, with their count in front. Equal topics give equal bytes, by which the engine knows them."""
    listed = [struct.pack("<H", len(name)) + name.encode() + struct.pack("<I", queues[name]) for name in queues]
    return struct.pack("<H", len(queues)) + b"".join(listed)


def encode_pull(
    group: bytes,
    topics: bytes,
    *,
    max_messages: int,
    max_bytes: int,
    wait_ms: int,
    invisible_ms: int,
    start: int,
    ranges: bytes,
) -> bytes:
    """A PULL request."""
    limits = _LIMITS.pack(max_messages, max_bytes, wait_ms, invisible_ms, start)
    return b"".join((struct.pack("<H", len(group)), group, topics, limits, ranges))


def encode_acks(group: bytes, topics: bytes, ranges: bytes) -> bytes:
    """A PULL request that only acknowledges."""
    return encode_pull(group, topics, max_messages=0, max_bytes=1, wait_ms=0, invisible_ms=1000, start=0, ranges=ranges)


def give_back(payload: bytes, pieces_at: int, skip: int) -> tuple[bytes, int]:
    """Ack ranges that make every record of the answer but the first `skip` ready at once, and how many records they are.

    RETRY with delay 0, for it works however long the lease still runs. The next delivery counts as another attempt, which is
    the truth: nobody knows how much of the reply the client has seen.
    """
    ranges = []
    count = 0
    for token, _, delta, _, _, _, records in read_pieces(payload, pieces_at):
        passed = min(skip, len(records))
        skip -= passed
        if len(records) > passed and token != NO_RECEIPT:
            ranges.append(RANGE.pack(token, delta + passed, len(records) - passed, RETRY, 0, 0))
            count += len(records) - passed
    return struct.pack("<I", len(ranges)) + b"".join(ranges), count
