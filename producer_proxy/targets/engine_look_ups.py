"""Searches the log of one broker for the message with an id."""

import time

from common.contract import Code
from engine.client.brokers import Broker
from engine.link.errors import PayloadError
from engine.link.look_up import decode_look_up_answer, encode_look_up
from engine.link.operations import LOOK_UP_ID
from producer_proxy.targets.base import Outcome
from producer_proxy.targets.engine_pending_ids import NONE, UNKNOWN

CANNOT: Outcome = (int(Code.INVALID), None, None)
"""The engine has no lookup index of ids (--look-up), and checks only ids that clients set."""


def find_by_id(broker: Broker, topic: str, shown: str, since_ms: int, deadline_s: float) -> Outcome:
    """DUPLICATE with the place of the message; NONE, CANNOT or UNKNOWN. Blocks the greenlet.

    Args:
        shown: the id as senders see it.
        since_ms: messages that were stored before it are not searched.
    """
    following = None
    while True:
        question = encode_look_up(since_ms, 1, following, topic=topic, id=shown)
        code, answer = broker.rpc.call(LOOK_UP_ID, question, max(0.0, deadline_s - time.monotonic()))
        if code == Code.UNKNOWN_TOPIC:
            return NONE
        if code != Code.OK:
            return CANNOT if code == Code.INVALID else UNKNOWN
        try:
            report, pieces = decode_look_up_answer(answer)
        except PayloadError:
            return UNKNOWN
        if pieces:
            return int(Code.DUPLICATE), pieces[0].queue, pieces[0].first_offset
        following = report["next"]
        if following is None:
            return NONE
