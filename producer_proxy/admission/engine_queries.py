"""Queries to the engine: one broker group lends slices of cluster-wide quotas, and each knows the lag of groups on its
queues.
"""

import json
from math import ceil
from typing import Any

from common.limits.quota_slices import Answer
from engine.client.append import Destinations
from engine.client.brokers import Broker, Brokers
from engine.client.router import ask_all
from engine.link.codes import OK, UNAVAILABLE
from engine.link.operations import BACKLOG, LEASE

SHARED_BOUNDS = ("messages", "bytes")


class EngineQueries:
    """Sends LEASE and BACKLOG requests to the broker groups.

    Args:
        known: the destinations; they hold the homes of each topic's queues.
    """

    def __init__(self, brokers: Brokers, known: Destinations) -> None:
        self._brokers, self._known = brokers, known

    def lend(self, payload: bytes, answer: Answer) -> None:
        """Send LEASE. The lender is the same for all proxies: the first broker group by name."""
        self._brokers.router.ask_lender(LEASE, payload, answer)

    def backlogs(self, payload: bytes, answer: Answer) -> None:
        """Send BACKLOG. Each broker group is asked about its queues, with its share of the bounds.

        Messages are spread evenly, so the share is that of the queues. The first reason counts. Isolated groups are not
        asked, because they get no messages.
        """
        if self._brokers.only is not None:
            return self._brokers.only.ask(BACKLOG, payload, answer)
        topics = json.loads(payload)["topics"]
        usable = [broker for broker in self._brokers.listed if broker.breaker.share]
        parts = {broker: part for broker in usable if (part := self._part(broker.number, topics))}
        requests = {broker: json.dumps({"topics": list(part.values())}).encode() for broker, part in parts.items()}

        def joined(answers: dict[Broker, tuple[int, bytes]]) -> None:
            reasons: list[dict[str, str] | None] = [None] * len(topics)
            heard = {broker: found for broker, (code, found) in answers.items() if code == OK}
            for broker, found in heard.items():
                for index, reason in zip(parts[broker], json.loads(found)["topics"], strict=True):
                    reasons[index] = reasons[index] or reason
            answer(OK if heard else UNAVAILABLE, json.dumps({"topics": reasons}).encode())

        return ask_all(requests, BACKLOG, joined)

    def _part(self, number: int, topics: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """The question for one group, by the topic's index in the whole question."""
        found = {}
        for index, topic in enumerate(topics):
            destination = self._known.get(topic["name"].encode())
            if destination is None or not destination.homes:
                continue
            held, of = _held(destination.homes, destination.first_queue, number)
            if held:
                found[index] = {**topic, **{name: ceil(topic[name] * held / of) for name in SHARED_BOUNDS}}
        return found


def _held(homes: bytes, first_queue: int, number: int) -> tuple[int, int]:
    """The group's queues among those that take messages, and their number; where it has none, among the earlier ones."""
    held = homes.count(number, first_queue)
    return (held, len(homes) - first_queue) if held else (homes.count(number, 0, first_queue), first_queue)
