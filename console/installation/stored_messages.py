"""Stored messages for pages: found by id, place or time, and decoded. Bodies are hostile text."""

import json
import time
from dataclasses import dataclass
from typing import NamedTuple

from common.contract import Message, decode_struct
from common.filter.native import Filter
from common.placement import first_queue
from console.installation.broker_queries import BrokerQueries
from engine.client import lookup
from engine.client.admin import AdminError
from engine.client.lookup import Stored
from engine.link.codes import UNKNOWN_TOPIC

LIMIT_MAX = 100
SCAN_MAX, SCAN_S_MAX, SCAN_PAGE = 50_000, 5.0, 2_000
ID_CHARS_MAX = 256


@dataclass(frozen=True)
class FoundMessage:
    """One stored message. `stored_ms` is Unix time."""

    topic: str
    queue: int
    offset: int
    id: str
    stored_ms: int
    key: str
    tag: str
    properties: dict[str, str]
    body: bytes
    is_delayed: bool = False  # its sender has asked for a later delivery
    is_masked: bool = False  # fields that the reader's role does not see are hidden

    @property
    def text(self) -> str | None:
        """The body as text; None: it is not UTF-8."""
        try:
            return self.body.decode()
        except UnicodeDecodeError:
            return None

    @property
    def json_text(self) -> str | None:
        """The body as indented JSON; None: it is not JSON."""
        try:
            return json.dumps(json.loads(self.body), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            return None


class Matching(NamedTuple):
    """Result of a filter's search. `stopped_ms`: stored when the last one that was read; None: all were read."""

    found: list[FoundMessage]
    read: int
    stopped_ms: int | None


class StoredMessages:
    """Look-ups over all engines. All raise LinkError, AdminError and OSError."""

    def __init__(self, queries: BrokerQueries) -> None:
        self._queries = queries

    def by_id(self, topic: str, shown_id: str) -> list[FoundMessage]:
        """The messages with an id: one, or more when a client used it again."""
        with self._queries.joined() as link:
            return [decoded(topic, each) for each in lookup.by_id(link, topic, shown_id)[:LIMIT_MAX]]

    def browse(self, topic: str, queue: int, offset: int, limit: int) -> list[FoundMessage]:
        """Messages of a queue from an offset on."""
        with self._queries.joined() as link:
            return [decoded(topic, each) for each in lookup.browse(link, topic, queue, offset, min(limit, LIMIT_MAX))]

    def since(self, topic: str, from_ms: int, limit: int) -> list[FoundMessage]:
        """The first messages that were stored at or after a time, in the order of their times."""
        with self._queries.joined() as link:
            return [decoded(topic, each) for each in lookup.since(link, topic, from_ms, min(limit, LIMIT_MAX))]

    def by_key(self, topic: str, key: str, from_ms: int, limit: int) -> list[FoundMessage]:
        """The oldest messages with a key that were stored at or after a time."""
        first = first_queue(self._queries.placed_topics, topic)
        with self._queries.joined() as link:
            found = lookup.by_key(link, topic, key, from_ms, min(limit, LIMIT_MAX), first_queue=first)
        return [decoded(topic, each) for each in found]

    def matching(self, topic: str, wanted: Filter, from_ms: int, until_ms: int | None, limit: int) -> Matching:
        """The oldest messages since a time that pass a filter; reads SCAN_MAX messages and SCAN_S_MAX at most."""
        found: list[FoundMessage] = []
        read, end, last_ms = 0, time.monotonic() + SCAN_S_MAX, from_ms
        with self._queries.joined() as link:
            for each in lookup.scan(link, topic, from_ms, SCAN_PAGE):
                if until_ms is not None and each.stored_at_ms >= until_ms:
                    break
                if read >= SCAN_MAX or len(found) >= limit or time.monotonic() > end:
                    return Matching(found, read, last_ms)
                read, last_ms = read + 1, each.stored_at_ms
                if wanted.passes(each.message):
                    found.append(decoded(topic, each))
        return Matching(found, read, None)

    def newest(self, topic: str, limit: int) -> list[tuple[Stored, FoundMessage]]:
        """About the newest messages of a topic, newest first, as stored and decoded: an equal share of each queue."""
        with self._queries.joined() as link:
            try:
                places = lookup.bounds(link, topic)
            except AdminError as error:
                if error.code != UNKNOWN_TOPIC:
                    raise
                return []  # an engine knows a topic from its first message on
            ends = {queue: place for queue, place in places.items() if place[1] > place[0]}
            asked = sorted(ends, key=lambda queue: -ends[queue][1])[:limit]
            share = -(-limit // max(1, len(asked)))
            found = [
                each
                for queue in asked
                for each in lookup.browse(link, topic, queue, max(ends[queue][0], ends[queue][1] - share), share)
            ]
        newest = sorted(found, key=lambda each: -each.stored_at_ms)[:limit]
        return [(each, decoded(topic, each)) for each in newest]

    def one(self, topic: str, queue: int, offset: int) -> FoundMessage | None:
        """The message at a place; None: there is none."""
        found = self.browse(topic, queue, offset, 1)
        return found[0] if found and found[0].offset == offset else None


def decoded(topic: str, stored: Stored) -> FoundMessage:
    """Decode a message that an engine has stored."""
    message = decode_struct(Message, stored.message)
    return FoundMessage(
        topic, stored.queue, stored.offset, stored.id or "", stored.stored_at_ms, message.key or "", message.tag or "",
        dict(message.properties or {}), message.body or b"", bool(message.deliver_at_ms or message.delay_ms),
    )  # fmt: skip
