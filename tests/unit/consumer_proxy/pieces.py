"""Makes what an engine would send: records, tokens, pieces and whole PULL answers."""

import json
import struct

from engine.link.pieces import PIECE
from engine.link.pull import encode_answer
from engine.link.receipt import TOKEN, encode_receipt
from engine.link.record import encode_record


def message(topic=b"orders", body=b"x", own_id=None, extra=b""):
    parts = [struct.pack(">BHI", 11, 1, len(topic)), topic, struct.pack(">BHI", 11, 2, len(body)), body]
    if own_id is not None:
        parts += [struct.pack(">BHI", 11, 6, len(own_id)), own_id]
    return b"".join([*parts, extra, b"\0"])


def record(stored, assigned=None, request=b""):
    return encode_record(stored, assigned or b"", request)


def token(queue=3, count=100, base=1000, lease=7, mac=b"m" * 16, topic_hash=5):
    return TOKEN.pack(1, queue, count, topic_hash, base, lease) + mac


def receipt(delta, **fields):
    return encode_receipt(token(**fields), delta)


def piece(records, of=None, offset=1000, delta=0, queue=3, attempt=1, stored_at_ms=1_700_000_000_000):
    block = b"".join(records)
    head = PIECE.pack(
        token() if of is None else of, offset, delta, queue, len(records), attempt, stored_at_ms, len(block), 0
    )
    return head + block


def answer(pieces, codes=()):
    return b"".join(encode_answer(codes, len(pieces), pieces))


def pieces_at(codes=()):
    return 4 + 2 * len(codes)


def ack(receipt_bytes, verdict=None, delay_ms=None, reason=None):
    parts = [struct.pack(">BHI", 11, 1, len(receipt_bytes)), receipt_bytes]
    if verdict is not None:
        parts.append(struct.pack(">BHi", 8, 2, verdict))
    if delay_ms is not None:
        parts.append(struct.pack(">BHi", 8, 3, delay_ms))
    if reason is not None:
        parts += [struct.pack(">BHI", 11, 4, len(reason)), reason]
    return b"".join([*parts, b"\0"])


CREDENTIAL = b"".join(
    [
        struct.pack(">BHI", 11, 1, 3) + b"app",
        struct.pack(">BHI", 11, 2, 1) + b"k",
        struct.pack(">BHq", 10, 3, 1_700_000_000_000),
        struct.pack(">BHI", 11, 4, 32) + b"s" * 32,
        b"\0",
    ]
)


def pull_frame(acks=(), seqid=9, group=b"billing", rest=b""):
    """A whole pull, strict binary, with its acks as they are given."""
    parts = [
        struct.pack(">HHI4si", 0x8001, 1, 4, b"pull", seqid),
        struct.pack(">BHBH", 12, 1, 12, 1) + CREDENTIAL,
        struct.pack(">BHI", 11, 2, len(group)) + group,
        struct.pack(">BHBI", 15, 7, 12, len(acks)) + b"".join(acks),
        rest,
        b"\0\0",
    ]
    return b"".join(parts)


def reports(*found, pieces=()):
    text = json.dumps({"reports": found}).encode()
    return struct.pack("<I", len(text)) + text + struct.pack("<I", len(pieces)) + b"".join(pieces)
