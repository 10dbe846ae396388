"""PULL's bytes as the server reads and writes them. Counts are held against the bytes that are left before anything is made."""

import os
import struct
from functools import lru_cache

from common.names import NAME_RULE, is_name
from engine.delivery.pull import Pull, PullRequest
from engine.link.layout import ACK, PULL_LIMITS, U16, U32
from engine.ops.errors import RequestError

try:
    if os.environ.get("PENSTOCK_PURE"):
        raise ImportError("twins asked for")
    from engine.server._pull_parts import read_acks, topics_end
except ImportError:
    from engine.server.pull_parts import read_acks, topics_end


def decode_pull(payload: bytes) -> PullRequest:
    """Raises RequestError with one sentence when the bytes are no PULL request."""
    try:
        return _decode_pull(payload)
    except (IndexError, ValueError, struct.error) as fault:
        raise RequestError(f"PULL: the payload is cut off or damaged: {fault}") from fault


def _decode_pull(payload: bytes) -> PullRequest:
    topics_at = 4 + U16.unpack_from(payload, 0)[0]
    group = _group(payload[2 : topics_at - 2])
    at = topics_end(payload, topics_at, U16.unpack_from(payload, topics_at - 2)[0])
    if at < 0:
        raise RequestError("PULL: topics run past the end")
    raw = payload[topics_at:at]
    most, most_bytes, wait_ms, invisible_ms, start, ack_count = PULL_LIMITS.unpack_from(payload, at)
    at += PULL_LIMITS.size
    if ack_count * ACK.size > len(payload) - at:
        raise RequestError("PULL: more acknowledgements than bytes")
    acks = read_acks(payload, at, ack_count)
    if acks is None:
        raise RequestError("PULL: acknowledgements do not end where the payload does")
    return PullRequest(group, _topics(raw), raw, most, most_bytes, wait_ms, invisible_ms, start, acks)


@lru_cache(maxsize=4096)
def _group(raw: bytes) -> str:
    return checked_name(raw.decode(), "group")


@lru_cache(maxsize=4096)
def _topics(raw: bytes) -> tuple[tuple[str, int], ...]:
    topics, at = [], 0
    while at < len(raw):
        end = at + 2 + U16.unpack_from(raw, at)[0]
        topics.append((checked_name(raw[at + 2 : end].decode(), "topic"), U32.unpack_from(raw, end)[0]))
        at = end + 4
    return tuple(topics)


def checked_name(name: object, what: str) -> str:
    """The name itself. Raises RequestError when it breaks the rule for names."""
    if not isinstance(name, str) or not is_name(name):
        raise RequestError(f"{what}: {NAME_RULE}")
    return name


def encode_pull_answer(pull: Pull) -> list[bytes]:
    """The answer's payload in parts, so that records are copied once only."""
    codes = pull.ack_codes
    head = U32.pack(len(codes)) + b"".join(map(U16.pack, codes)) + U32.pack(pull.piece_count)
    return [head, *pull.pieces]
