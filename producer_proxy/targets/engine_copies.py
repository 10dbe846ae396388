"""Copies of messages at the engine, by id and whatever made the id: the repair of dual writes asks for them."""

from collections.abc import Sequence

from gevent.pool import Pool

from engine.client.brokers import Brokers
from producer_proxy.targets.base import MessageSlice, Outcome
from producer_proxy.targets.engine_look_ups import find_by_id
from producer_proxy.targets.engine_pending_ids import UNKNOWN, joined

AT_ONCE = 8
"""Look-ups in flight: an engine searches one after another."""


def stored_copies(
    brokers: Brokers, messages: Sequence[MessageSlice], shown_ids: Sequence[str], since_ms: int, deadline_s: float
) -> list[Outcome]:
    """See SendTarget.stored_copies. All brokers are asked: a message without a key may be at any of them."""
    answered = {broker: broker.wait_answered(deadline_s) for broker in brokers.listed}

    def find(message: MessageSlice, shown: str) -> Outcome:
        topic = message.destination.name.decode()
        return joined(
            [
                find_by_id(broker, topic, shown, since_ms, deadline_s) if ok else UNKNOWN
                for broker, ok in answered.items()
            ]
        )

    pool = Pool(AT_ONCE)
    searches = [pool.spawn(find, *each) for each in zip(messages, shown_ids, strict=True)]
    return [search.get() for search in searches]
