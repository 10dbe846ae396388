"""Dead letters of groups for pages: lists, one with its message, redrive in bounded steps. Texts in them are hostile."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from common.contract import Code
from common.dead_letters import PROPERTY, QUEUES_MAX, dead_letter_topic
from common.placement import Placement, topic_hash
from console.installation.broker_queries import BrokerQueries
from console.installation.stored_messages import FoundMessage, decoded
from engine.client import dead_letters as verbs
from engine.client import lookup
from engine.client.admin import AdminClient, AdminError
from engine.client.dead_letters import DeadLetterChoice

REDRIVE_S_MAX = 5.0
REDRIVE_RATE = 2_000
SETTLE_S_MAX = 5.0


class DeadLetterRow(NamedTuple):
    """One dead letter. `place` names it: the broker group and the offset in its dead-letter topic."""

    broker_group: str
    offset: int
    died_ms: int
    cause: str
    reason: str
    attempts: int
    topic: str
    queue: int | None
    message_offset: int | None
    id: str
    key: str
    first_ms: int | None

    @property
    def place(self) -> str:
        return f"{self.broker_group}/{self.offset}"


class Redriven(NamedTuple):
    """Result of one step. `has_more`: dead letters of the choice are left, because the step's time was over."""

    sent: int
    has_more: bool


class DeadLetters:
    """Dead letters over all engines. All raise LinkError, AdminError and OSError."""

    def __init__(self, queries: BrokerQueries) -> None:
        self._queries = queries

    def oldest(self, group: str, choice: DeadLetterChoice, limit: int) -> tuple[list[DeadLetterRow], bool]:
        """The oldest dead letters of the choice, and whether there are more."""
        found: list[DeadLetterRow] = []
        with self._queries.complete() as links:
            for name, link in links.items():
                own = [_row(name, each) for each in _first(link, group, choice, limit + 1)]
                found += own
        found.sort(key=lambda row: (row.died_ms, row.broker_group, row.offset))
        return found[:limit], len(found) > limit

    def messages(self, group: str, rows: list[DeadLetterRow]) -> Iterator[tuple[DeadLetterRow, FoundMessage | None]]:
        """Each dead letter with its message; None: retention has deleted it meanwhile."""
        topic = dead_letter_topic(group)
        with self._queries.complete() as links:
            for row in rows:
                link = links.get(row.broker_group)
                found = lookup.browse(link, topic, self._queue(topic, row.broker_group), row.offset, 1) if link else []
                yield row, decoded(topic, found[0]) if found and found[0].offset == row.offset else None

    def one(self, group: str, broker_group: str, offset: int) -> tuple[DeadLetterRow, FoundMessage] | None:
        """A dead letter and its message, without what dead-lettering has added; None: there is none (any more)."""
        if broker_group not in self._queries.places():
            return None
        with self._queries.complete() as links:
            rows = _first(links[broker_group], group, DeadLetterChoice(offsets=[offset]), 1)
        for row, message in self.messages(group, [_row(broker_group, each) for each in rows]):
            return None if message is None else (row, message)
        return None

    def redrive(self, group: str, choice: DeadLetterChoice, broker_group: str | None = None) -> Redriven:
        """Send dead letters to their topics again, for at most REDRIVE_S_MAX.

        Each is removed when its copy is durable; those that are in flight stay.

        Args:
            broker_group: only those at its engine, for a choice by offsets.
        """
        count, end = 0, time.monotonic() + REDRIVE_S_MAX
        with self._queries.complete() as links:
            for name, link in links.items():
                if broker_group not in (None, name):
                    continue
                try:
                    for answer in verbs.pages(link, "redrive", group, choice, REDRIVE_RATE):
                        count += answer["count"]
                        if time.monotonic() > end and answer["next"] < answer["end"]:
                            return Redriven(count, True)
                    verbs.wait_settled(link, group, SETTLE_S_MAX)
                except AdminError as error:
                    if error.code != Code.UNKNOWN_GROUP:
                        raise
        return Redriven(count, False)

    def _queue(self, topic: str, broker_group: str) -> int:
        """The queue in which an engine keeps its dead letters: the first one that its broker group holds."""
        names = list(self._queries.places())
        if len(names) < 2:
            return 0
        own = Placement(names).nearest(names.index(broker_group), topic_hash(topic.encode()), 0, QUEUES_MAX)
        return own or 0


def without_marks(message: FoundMessage) -> dict[str, str]:
    """The properties that the message had before it was dead-lettered."""
    return {name: text for name, text in message.properties.items() if not name.startswith(PROPERTY)}


def _first(link: AdminClient, group: str, choice: DeadLetterChoice, limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    try:
        for answer in verbs.pages(link, "dead_letters", group, choice):
            found += answer["letters"]
            if len(found) >= limit:
                break
    except AdminError as error:
        if error.code != Code.UNKNOWN_GROUP:
            raise
    return found[:limit]


def _row(broker_group: str, row: dict[str, Any]) -> DeadLetterRow:
    return DeadLetterRow(
        broker_group, row["offset"], row["died_ms"], row.get("cause", ""), row.get("reason", ""), row.get("attempts", 0),
        row.get("topic", ""), row.get("queue"), row.get("message_offset"), row.get("id", ""), row.get("key", ""),
        row.get("first_ms"),
    )  # fmt: skip
