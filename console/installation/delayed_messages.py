"""Delayed messages of a topic that are pending, over all engines: list and cancel."""

from typing import Any

from common.contract import Code
from console.installation.broker_queries import BrokerQueries
from engine.client import timers
from engine.client.admin import AdminError

PAGE = 1_000


class DelayedMessages:
    """All raise LinkError, AdminError and OSError."""

    def __init__(self, queries: BrokerQueries) -> None:
        self._queries = queries

    def pending(self, topic: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
        """Up to `limit` pending messages, soonest first, and whether these are all; else they are an arbitrary part.

        Rows have id, due_ms, queue, bytes, rounds and gap_ms.
        """
        rows: list[dict[str, Any]] = []
        is_all = True
        with self._queries.complete() as links:
            for link in links.values():
                start, own = 0, 0
                try:
                    while start >= 0 and own < limit:
                        page, start = timers.listed(link, topic, start, min(PAGE, limit - own))
                        rows, own = rows + page, own + len(page)
                except AdminError as error:
                    if error.code != Code.UNKNOWN_TOPIC:
                        raise
                    start = -1
                is_all = is_all and start < 0
        rows.sort(key=lambda row: (row["due_ms"], row["id"]))
        return rows[:limit], is_all and len(rows) <= limit

    def cancel(self, topic: str, shown_id: str) -> bool:
        """Cancel a pending message or all coming rounds of a loop; durable on return. False: there is none."""
        found = False
        with self._queries.complete() as links:
            for link in links.values():
                try:
                    timers.cancel(link, topic, shown_id)
                    found = True
                except AdminError as error:
                    if error.code != Code.NOT_CANCELLABLE:
                        raise
        return found
