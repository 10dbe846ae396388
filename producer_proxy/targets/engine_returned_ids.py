"""Messages that come back with an id that a proxy assigned: their first copies are looked up in the log.

With several broker groups a delayed copy may be pending at any of them, so each is asked for that first: a message that
fires meanwhile is in the log when that is searched.

A send without an id is not checked and costs nothing; its answer names the assigned id. After a TIMEOUT the message may
be stored, and the client is told to send it again under that id. The engine remembers only ids that it has checked, so
the first copy is found by its lookup index instead. The send that follows is checked as any with an id, and remembered.
"""

from collections.abc import Sequence

import gevent

from common.contract import Code
from engine.client.brokers import Broker, Brokers
from producer_proxy.targets.base import MessageSlice, Outcome
from producer_proxy.targets.engine_look_ups import CANNOT, find_by_id
from producer_proxy.targets.engine_pending_ids import NONE, UNKNOWN, PendingIds, joined

CLOCKS_MS = 600_000
"""Largest difference of the clocks of the proxy that assigned the id and of the engine."""


class ReturnedIds:
    """Looks for first copies at all brokers: a message without a key may be at any of them.

    Args:
        brokers: with their links for rare operations.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers, self._pending = brokers, PendingIds(brokers)

    def find(self, messages: Sequence[MessageSlice], shown_ids: Sequence[str], deadline_s: float) -> list[Outcome]:
        """The outcome of each message; see SendTarget.first_copies. Blocks the greenlet."""
        if self._brokers.only is not None:  # the engine that adds a delayed message knows all that are pending
            return self._search(messages, shown_ids, deadline_s)
        outcomes = self._pending.find(messages, shown_ids, deadline_s)
        left = [index for index, each in enumerate(outcomes) if each[0] == Code.OK]
        if left:
            found = self._search([messages[index] for index in left], [shown_ids[index] for index in left], deadline_s)
            for index, each in zip(left, found, strict=True):
                outcomes[index] = each
        return outcomes

    def _search(self, messages: Sequence[MessageSlice], shown_ids: Sequence[str], deadline_s: float) -> list[Outcome]:
        searches = [
            [
                gevent.spawn(_find, broker, each.destination.name.decode(), shown, deadline_s)
                for broker in self._brokers.listed
            ]
            for each, shown in zip(messages, shown_ids, strict=True)
        ]
        gevent.joinall([search for group in searches for search in group], raise_error=True)
        return [joined([search.value for search in group]) for group in searches]


def _find(broker: Broker, topic: str, shown: str, deadline_s: float) -> Outcome:
    # A first copy that this proxy has taken and the broker has not answered may be stored after the look-up.
    if not broker.wait_answered(deadline_s):
        return UNKNOWN
    found = find_by_id(broker, topic, shown, max(0, int(shown[:12], 16) - CLOCKS_MS), deadline_s)
    return NONE if found == CANNOT else found
