"""Queries to the engine: one broker group lends slices of cluster-wide quotas, and each knows the lag of groups on its
queues.
"""

import json
from collections.abc import Callable
from math import ceil
from typing import Any

from common.limits.quota_slices import Answer
from engine.client.append import Destinations
from engine.client.brokers import Broker, Brokers
from engine.link.codes import UNAVAILABLE
from engine.link.errors import LinkDown
from engine.link.operations import DEPTH, LEASE

SHARED_BOUNDS = ("messages", "bytes")


class EngineQueries:
    """
    Args:
        known: the destinations; they hold the homes of each topic's queues.
    """

    def __init__(self, brokers: Brokers, known: Destinations) -> None:
        self._brokers, self._known = brokers, known

    def lend(self, payload: bytes, answer: Answer) -> None:
        """Send LEASE. The lender is the same for all proxies: the first broker group by name."""
        lender = min(self._brokers.listed, key=lambda broker: broker.name, default=None)
        if lender is None:
            answer(UNAVAILABLE, b"")
        else:
            _send(lender, LEASE, payload, answer)

    def lags(self, payload: bytes, answer: Answer) -> None:
        """Send DEPTH. Each of several groups is asked about the queues that it holds, with its share of the bounds.

        Messages are spread evenly, so the share is that of the queues. The first reason counts. Isolated groups are not
        asked: nothing is sent to them either.
        """
        if self._brokers.only is not None:
            return _send(self._brokers.only, DEPTH, payload, answer)
        topics = json.loads(payload)["topics"]
        usable = [broker for broker in self._brokers.listed if broker.breaker.share]
        parts = {broker: part for broker in usable if (part := self._part(broker.number, topics))}
        joint = _JointAnswer(len(topics), len(parts), answer)
        for broker, part in parts.items():
            request = json.dumps({"topics": list(part.values())}).encode()
            _send(broker, DEPTH, request, joint.taking(list(part)))
        return None

    def _part(self, number: int, topics: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """The question for one group, by the topic's index in the whole question."""
        found = {}
        for index, topic in enumerate(topics):
            destination = self._known.get(topic["name"].encode())
            held = destination.homes.count(number) if destination is not None and destination.homes else 0
            if destination is not None and held:
                shared = {name: ceil(topic[name] * held / destination.queues) for name in SHARED_BOUNDS}
                found[index] = {**topic, **shared}
        return found


class _JointAnswer:
    """The answers of several groups, joined once all have come."""

    def __init__(self, topics: int, owed: int, answer: Answer) -> None:
        self._reasons: list[dict[str, str] | None] = [None] * topics
        self._owed, self._answer, self._answered = owed, answer, False

    def taking(self, indexes: list[int]) -> Callable[[int, bytes], None]:
        """A callback for the answer of a group that was asked about the topics with these indexes."""

        def take(code: int, payload: bytes) -> None:
            if code == 0:
                self._answered = True
                for index, reason in zip(indexes, json.loads(payload)["topics"], strict=True):
                    self._reasons[index] = self._reasons[index] or reason
            self._owed -= 1
            if self._owed == 0:
                self._answer(0 if self._answered else UNAVAILABLE, json.dumps({"topics": self._reasons}).encode())

        return take


def _send(broker: Broker, op: int, payload: bytes, answer: Answer) -> None:
    try:
        broker.rpc.send(op, payload, answer)
    except LinkDown:
        answer(UNAVAILABLE, b"")
