"""CLAIM: the queue of an id, decided once at the id's home. See docs/design/0028-ids-over-broker-groups.md."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from engine.link.batch import encode_batch
from engine.link.codes import CLAIMED, DUPLICATE, OK
from engine.link.errors import PayloadError
from engine.link.integers import U32

CLAIM_QUEUE = 0x40000000
"""A claim of queue q lies in the queue CLAIM_QUEUE + q of its topic, which no reader has."""

CLAIM_MORE_MS = 60_000
"""A claim lasts so much longer than the topic's window: the longest time from CLAIM to the append."""

CLAIMS_MAX = 10_000
WINDOW_MS_MAX = 0xFFFFFFFF - CLAIM_MORE_MS
_ID_FIELD = b"\x0b\x00\x06"


class Claim(NamedTuple):
    """One id.

    Attributes:
        topic: the topic as stored. queues: how many it has; a missing topic is created.
        queue: that the message asks for; None: claim nothing, its queue is at the id's home.
        window_ms: the topic's.
    """

    topic: str
    queues: int
    id: str
    queue: int | None
    window_ms: int


Claimed = tuple[int, int | None, int | None]
"""(code, queue, offset): OK, the queue that is claimed now, if one is; CLAIMED, the one that was; DUPLICATE, the place of
the first copy, if it is stored already. Other codes: nothing is known, nothing claimed."""


def encode_claims(durability: int, claims: Iterable[Claim]) -> bytes:
    """The request."""
    return json.dumps({"durability": durability, "ids": list(claims)}).encode()


def decode_claimed(payload: bytes, count: int) -> list[Claimed]:
    """One outcome per claim. Raises PayloadError."""
    try:
        found = [_claimed(*each) for each in json.loads(payload)["ids"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PayloadError("CLAIM: the answer is no list of outcomes") from None
    if len(found) != count:
        raise PayloadError(f"CLAIM: {len(found)} outcomes for {count} ids")
    return found


def _claimed(code: Any, queue: Any, offset: Any) -> Claimed:
    numbers: Sequence[Any] = (code, queue, offset)
    if type(code) is not int or any(each is not None and type(each) is not int for each in numbers):
        raise TypeError
    if (code < 100 and code not in (OK, DUPLICATE)) or (code == CLAIMED and queue is None):
        raise TypeError
    return code, queue, offset


def claim_batch(topic_id: int, claim: Claim, queue: int) -> bytes:
    """The batch that keeps the claim of a queue: a message that has only the id."""
    shown = claim.id.encode("utf-8", "surrogateescape")
    record = b"\0" + _ID_FIELD + len(shown).to_bytes(4, "big") + shown + b"\0"
    return encode_batch(
        topic_id, CLAIM_QUEUE | queue, [U32.pack(len(record)) + record], claim.window_ms + CLAIM_MORE_MS
    )
