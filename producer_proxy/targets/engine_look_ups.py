"""Searches the log of one broker for the message with an id."""

import time
from collections.abc import Iterator

from common.contract import Code
from engine.client.brokers import Broker
from engine.link.errors import PayloadError
from engine.link.look_up import decode_look_up_answer, encode_look_up
from engine.link.operations import LOOK_UP_ID
from engine.link.pieces import AnswerPiece
from producer_proxy.targets.base import UNCOUNTABLE, Outcome
from producer_proxy.targets.engine_pending_ids import NONE, UNKNOWN

COUNTED_AT_ONCE = 100
CANNOT: Outcome = (int(Code.INVALID), None, None)
"""The engine has no lookup index of ids (--look-up), and checks only ids that clients set."""


def find_by_id(broker: Broker, topic: str, shown: str, since_ms: int, deadline_s: float) -> Outcome:
    """DUPLICATE with the place of the message; NONE, CANNOT or UNKNOWN. Blocks the greenlet.

    Args:
        shown: the id as senders see it.
        since_ms: messages that were stored before it are not searched.
    """
    for found in _slices(broker, topic, shown, since_ms, 1, deadline_s):
        if not isinstance(found, list):
            return found
        if found:
            return int(Code.DUPLICATE), found[0].queue, found[0].first_offset
    return NONE


def count_by_id(broker: Broker, topic: str, shown: str, since_ms: int, deadline_s: float) -> int | None:
    """The number of messages with an id; None: it is not known now; UNCOUNTABLE: the engine cannot tell. As `find_by_id`."""
    count = 0
    for found in _slices(broker, topic, shown, since_ms, COUNTED_AT_ONCE, deadline_s):
        if not isinstance(found, list):
            return 0 if found == NONE else UNCOUNTABLE if found == CANNOT else None
        count += len(found)
    return count


def _slices(
    broker: Broker, topic: str, shown: str, since_ms: int, limit: int, deadline_s: float
) -> Iterator[list[AnswerPiece] | Outcome]:
    """What each slice of a search has found; at the end NONE, CANNOT or UNKNOWN if it did not come to its end."""
    following = None
    while True:
        question = encode_look_up(since_ms, limit, following, topic=topic, id=shown)
        code, answer = broker.rpc.call(LOOK_UP_ID, question, max(0.0, deadline_s - time.monotonic()))
        if code != Code.OK:
            yield NONE if code == Code.UNKNOWN_TOPIC else CANNOT if code == Code.INVALID else UNKNOWN
            return
        try:
            report, pieces = decode_look_up_answer(answer)
        except PayloadError:
            yield UNKNOWN
            return
        yield pieces
        following = report["next"]
        if following is None:
            return
