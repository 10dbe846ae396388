"""Copies of messages at the engine, by id and whatever made the id: the repair of dual writes asks for them."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from gevent.pool import Pool

from engine.client.brokers import Broker, Brokers
from producer_proxy.targets.base import UNCOUNTABLE, MessageSlice, Outcome
from producer_proxy.targets.engine_look_ups import count_by_id, find_by_id
from producer_proxy.targets.engine_pending_ids import UNKNOWN, joined

Found = TypeVar("Found")

AT_ONCE = 8
"""Look-ups in flight: an engine searches one after another."""


def stored_copies(
    brokers: Brokers, messages: Sequence[MessageSlice], shown_ids: Sequence[str], since_ms: int, deadline_s: float
) -> list[Outcome]:
    """See SendTarget.stored_copies. All brokers are asked: a message without a key may be at any of them."""

    def find(broker: Broker, topic: str, shown: str) -> Outcome:
        return find_by_id(broker, topic, shown, since_ms, deadline_s)

    return [
        joined([UNKNOWN if each is None else each for each in found])
        for found in _asked(brokers, messages, shown_ids, deadline_s, find)
    ]


def count_copies(
    brokers: Brokers, messages: Sequence[MessageSlice], shown_ids: Sequence[str], since_ms: int, deadline_s: float
) -> list[int | None]:
    """See SendTarget.count_copies."""

    def count(broker: Broker, topic: str, shown: str) -> int | None:
        return count_by_id(broker, topic, shown, since_ms, deadline_s)

    return [_sum(counts) for counts in _asked(brokers, messages, shown_ids, deadline_s, count)]


def _sum(counts: Sequence[int | None]) -> int | None:
    """All brokers' answers to `count_copies` as one."""
    known = [each for each in counts if each is not None]
    if UNCOUNTABLE in known:
        return UNCOUNTABLE
    return sum(known) if len(known) == len(counts) else None


def _asked(
    brokers: Brokers, messages: Sequence[MessageSlice], shown_ids: Sequence[str], deadline_s: float,
    ask: Callable[[Broker, str, str], Found | None],
) -> list[list[Found | None]]:  # fmt: skip
    """The answers of all brokers about each message; None: the broker did not answer."""
    answered = {broker: broker.wait_answered(deadline_s) for broker in brokers.listed}

    def find(message: MessageSlice, shown: str) -> list[Found | None]:
        topic = message.destination.name.decode()
        return [ask(broker, topic, shown) if ok else None for broker, ok in answered.items()]

    pool = Pool(AT_ONCE)
    searches = [pool.spawn(find, *each) for each in zip(messages, shown_ids, strict=True)]
    return [search.get() for search in searches]
