"""Stored messages for pages: found by id, place or time, and decoded. Bodies are hostile text."""

import json
from dataclasses import dataclass

from common.contract import Message, decode_struct
from console.installation.broker_queries import BrokerQueries
from engine.client import lookup
from engine.client.lookup import Stored

LIMIT_MAX = 100
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

    def one(self, topic: str, queue: int, offset: int) -> FoundMessage | None:
        """The message at a place; None: there is none."""
        found = self.browse(topic, queue, offset, 1)
        return found[0] if found and found[0].offset == offset else None


def decoded(topic: str, stored: Stored) -> FoundMessage:
    """Decode a message that an engine has stored."""
    message = decode_struct(Message, stored.message)
    return FoundMessage(
        topic, stored.queue, stored.offset, stored.id or "", stored.stored_at_ms, message.key or "", message.tag or "",
        dict(message.properties or {}), message.body or b"",
    )  # fmt: skip
