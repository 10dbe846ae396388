"""The client's half of PULL, READ and TOPIC payloads, and receipts."""

import json
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from common.reply_token import TOKEN_SIZE as REPLY_TOKEN_SIZE
from engine.link.errors import LinkError
from engine.link.layout import ACK, HAS_ID, HAS_TRAILER, PIECE, PULL_LIMITS, RECEIPT_SIZE, TOKEN_SIZE, U16, U32


class AckRange(NamedTuple):
    """Neighbouring messages of one lease with one verdict. `delay_ms`: -1 is unset."""

    token: bytes
    first: int
    count: int  # type: ignore[assignment]
    verdict: int = 0
    delay_ms: int = -1
    reason: bytes = b""


class Piece(NamedTuple):
    """Records as stored, with the delivery that they belong to. `first_delta`: of the first record within its lease."""

    token: bytes
    first_offset: int
    first_delta: int
    queue: int
    count: int  # type: ignore[assignment]
    attempt: int
    stored_at_ms: int
    records: bytes


def encode_pull(
    group: str, topics: Iterable[tuple[str, int]] = (), *, max_messages: int = 32, max_bytes: int = 0,
    wait_ms: int = 0, invisible_ms: int = 0, start: int = 0, acks: Iterable[AckRange] = (),
) -> bytes:  # fmt: skip
    """A PULL request. 0 for bytes and invisible time takes the engine's default."""
    topics, acks = list(topics), list(acks)
    out = [U16.pack(len(group.encode())), group.encode(), U16.pack(len(topics))]
    for name, queues in topics:
        out += (U16.pack(len(name.encode())), name.encode(), U32.pack(queues))
    out.append(PULL_LIMITS.pack(max_messages, max_bytes, wait_ms, invisible_ms, start, len(acks)))
    for token, first, count, verdict, delay_ms, reason in acks:
        out += (ACK.pack(token, first, count, verdict, delay_ms, len(reason)), reason)
    return b"".join(out)


def decode_pull_answer(payload: bytes) -> tuple[list[int], list[Piece]]:
    """(codes of the acknowledgements, pieces). Raises LinkError on bytes that are no such answer."""
    try:
        (count,) = U32.unpack_from(payload)
        if 2 * count > len(payload):
            raise LinkError("PULL answer: more codes than bytes")
        codes = [U16.unpack_from(payload, 4 + 2 * index)[0] for index in range(count)]
        return codes, list(_pieces(payload, 4 + 2 * count))
    except (ValueError, IndexError, struct.error) as fault:
        raise LinkError(f"PULL answer: {fault}") from fault


def encode_read(positions: list[dict], *, max_messages: int = 32, max_bytes: int = 0, wait_ms: int = 0) -> bytes:
    """A READ request; positions as in the contract, without what is unset."""
    request = {"positions": positions, "max_messages": max_messages, "max_bytes": max_bytes, "wait_ms": wait_ms}
    return json.dumps(request).encode()


def decode_read_answer(payload: bytes) -> tuple[list[dict], list[Piece]]:
    """(reports, pieces)."""
    (size,) = U32.unpack_from(payload)
    return json.loads(payload[4 : 4 + size])["reports"], list(_pieces(payload, 4 + size))


def decode_look_up_answer(payload: bytes) -> tuple[dict, list[Piece]]:
    """(report with `next`, a piece a message)."""
    (size,) = U32.unpack_from(payload)
    return json.loads(payload[4 : 4 + size]), list(_pieces(payload, 4 + size))


def encode_topics(topics: Iterable[tuple[str, int]]) -> bytes:
    """A TOPIC request."""
    return json.dumps({"topics": [{"name": name, "queues": queues} for name, queues in topics]}).encode()


def split_records(records: bytes) -> Iterator[tuple[bytes | None, bytes]]:
    """(assigned id or None, message in Thrift binary) of each record of a piece; a request's token is left away."""
    at = 0
    while at < len(records):
        end = at + 4 + U32.unpack_from(records, at)[0]
        flags = records[at + 4]
        message_end = end - (REPLY_TOKEN_SIZE if flags & HAS_TRAILER else 0)
        if flags & HAS_ID:
            yield records[at + 5 : at + 21], records[at + 21 : message_end]
        else:
            yield None, records[at + 5 : message_end]
        at = end


def receipt(piece: Piece, index: int) -> bytes:
    """What a consumer gets of the piece's message number `index`."""
    return piece.token + U32.pack(piece.first_delta + index)


def split_receipt(data: bytes) -> tuple[bytes, int] | None:
    """(token, delta), None when it is no receipt."""
    if len(data) != RECEIPT_SIZE:
        return None
    return data[:TOKEN_SIZE], U32.unpack_from(data, TOKEN_SIZE)[0]


def group_receipts(receipts: Iterable[bytes], verdict: int = 0, delay_ms: int = -1) -> list[AckRange]:
    """Ranges for receipts that come in delivery order: neighbours of one lease become one. Skips what is no receipt."""
    ranges: list[AckRange] = []
    for data in receipts:
        parts = split_receipt(data)
        if parts is None:
            continue
        token, delta = parts
        last = ranges[-1] if ranges else None
        if last is not None and last.token == token and last.first + last.count == delta:
            ranges[-1] = last._replace(count=last.count + 1)
        else:
            ranges.append(AckRange(token, delta, 1, verdict, delay_ms))
    return ranges


def _pieces(payload: bytes, at: int) -> Iterator[Piece]:
    (count,) = U32.unpack_from(payload, at)
    at += 4
    for _ in range(count):
        *fields, size, _ = PIECE.unpack_from(payload, at)
        at += PIECE.size
        if size > len(payload) - at:
            raise LinkError("a piece runs past the end of the answer")
        yield Piece(*fields, payload[at : at + size])  # type: ignore[call-arg]
        at += size
