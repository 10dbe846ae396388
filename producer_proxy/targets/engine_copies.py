"""Copies of messages at the engine, by id and whatever made the id: the repair of dual writes asks for them."""

import time
from collections.abc import Sequence

from gevent.pool import Pool

from common.contract import Code
from engine.client.brokers import Broker, Brokers
from engine.link.errors import PayloadError
from engine.link.look_up import decode_look_up_answer, encode_look_up
from engine.link.operations import LOOK_UP_ID
from producer_proxy.targets.base import MessageSlice, Outcome
from producer_proxy.targets.engine_pending_ids import NONE, UNKNOWN, joined

AT_ONCE = 8
"""Look-ups in flight: an engine searches one after another."""
CANNOT: Outcome = (int(Code.INVALID), None, None)


def stored_copies(
    brokers: Brokers, messages: Sequence[MessageSlice], shown_ids: Sequence[str], since_ms: int, deadline_s: float
) -> list[Outcome]:
    """See SendTarget.stored_copies. All brokers are asked: a message without a key may be at any of them."""
    answered = {broker: broker.wait_answered(deadline_s) for broker in brokers.listed}

    def find(message: MessageSlice, shown: str) -> Outcome:
        topic = message.destination.name.decode()
        return joined(
            [_find(broker, topic, shown, since_ms, deadline_s) if ok else UNKNOWN for broker, ok in answered.items()]
        )

    pool = Pool(AT_ONCE)
    searches = [pool.spawn(find, *each) for each in zip(messages, shown_ids, strict=True)]
    return [search.get() for search in searches]


def _find(broker: Broker, topic: str, shown: str, since_ms: int, deadline_s: float) -> Outcome:
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
