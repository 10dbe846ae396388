"""Look-up by id and by key on the link: each request is one slice of a search, run in the log's thread, answered from the loop."""

import json
import logging
from collections import deque
from functools import partial
from typing import Any

import gevent

from engine.link import layout
from engine.link.layout import NO_TOKEN, PIECE, U32
from engine.log.lookup_index.lookup_file import ID, KEY, Family
from engine.log.lookup_index.search import FoundRecord, LookupCursor, LookupQuery, Search
from engine.server.errors import RequestError

log = logging.getLogger("penstock.engine")
LIMIT_DEFAULT, LIMIT_MAX = 100, 1000
BYTES_MAX = 4 << 20
NAME_BYTES_MAX = 65_536
TIME_MAX = 1 << 62
RUNNING_MAX = 64
"""Searches that wait for the thread, at a quarter of a second each at most."""


class Looking:
    """Answers the two operations.

    Args:
        service: remembers what waits for whom.
    """

    def __init__(self, store, service) -> None:
        self._store, self._service = store, service
        self._done: deque[tuple[Any, int, int, Search, bool]] = deque()
        self._running = 0
        self.requests = self.read_bytes = 0
        self._news = gevent.get_hub().loop.async_()
        self._news.start(self._on_news)
        self.handlers = {
            layout.LOOK_UP_ID: partial(self._look_up, ID, "id", layout.LOOK_UP_ID),
            layout.LOOK_UP_KEY: partial(self._look_up, KEY, "key", layout.LOOK_UP_KEY),
        }

    def close(self) -> None:
        """Blocks until the slice that is in work has ended."""
        self._store.look_up.close()
        self._news.stop()
        self._news.close()

    def _look_up(self, family: Family, field: str, op: int, connection, request_id: int, payload: bytes) -> None:
        request = _request(payload)
        if family.name not in self._store.look_up.families:
            raise RequestError(f"this engine has no look-up by {family.name}: --look-up", layout.UNAVAILABLE)
        name = request.get("topic")
        topic = self._store.topic(name) if isinstance(name, str) else None
        if topic is None:
            raise RequestError("the engine has no such topic", layout.UNKNOWN_TOPIC)
        if self._running >= RUNNING_MAX:
            raise RequestError(f"{RUNNING_MAX} look-ups wait already", layout.OVERLOADED)
        wanted = LookupQuery(
            family, topic.id, _name(request, field), _number(request, "from_ms", 0, 0, TIME_MAX),
            _number(request, "to_ms", TIME_MAX, 0, TIME_MAX), _number(request, "limit", LIMIT_DEFAULT, 1, LIMIT_MAX), BYTES_MAX,
        )  # fmt: skip
        search = self._store.look_up.search(wanted, _cursor(request))
        self._running += 1
        self.requests += 1

        def done() -> None:
            self._done.append((connection, op, request_id, search, request.get("records") is not False))
            self._news.send()

        def refuse() -> None:
            connection.send_frame(op, request_id, layout.SHUTTING_DOWN, [b"the engine stops"])

        self._service.wait(connection, request_id, search.cancel, refuse)
        self._store.look_up.start(search, done)

    def _on_news(self) -> None:
        while self._done:
            connection, op, request_id, search, with_records = self._done.popleft()
            self._running -= 1
            if search.is_cancelled:
                continue
            connection.peer_state.waiting.pop(request_id, None)
            if search.error:
                connection.send_frame(op, request_id, layout.UNAVAILABLE, [search.error.encode()])
                continue
            found = self._readable(search)
            self.read_bytes += search.read_bytes
            answer = {"next": search.cursor, "read_bytes": search.read_bytes}
            connection.send_frame(op, request_id, layout.OK, _answer(answer, found, with_records))

    def _readable(self, search: Search) -> list[FoundRecord]:
        """Without what lies below its queue's readable offset: retention has not come to its segment yet."""
        first = {
            queue: self._store.bounds(search.topic_id, queue)[0] for queue in {found.queue for found in search.found}
        }
        return [found for found in search.found if found.offset >= first[found.queue]]


def _answer(report: dict, found: list[FoundRecord], with_records: bool) -> list[bytes]:
    """A report as JSON, and a piece a message, without its record where only the place is wanted."""
    head = json.dumps(report).encode()
    parts = [U32.pack(len(head)), head, U32.pack(len(found))]
    for queue, offset, stored_at_ms, record in found:
        data = record if with_records else b""
        parts += (PIECE.pack(NO_TOKEN, offset, 0, queue, 1, 0, stored_at_ms, len(data), 0), data)
    return parts


def _request(payload: bytes) -> dict:
    try:
        request = json.loads(payload)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise RequestError("LOOK_UP: a JSON object")
    return request


def _name(request: dict, field: str) -> bytes:
    value = request.get(field)
    encoded = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else b""
    if not 1 <= len(encoded) <= NAME_BYTES_MAX:
        raise RequestError(f"{field}: text of 1..{NAME_BYTES_MAX} bytes")
    return encoded


def _number(request: dict, field: str, default: int, least: int, most: int) -> int:
    value = request.get(field)
    if value is None:
        return default
    if type(value) is not int or not least <= value <= most:
        raise RequestError(f"{field}: {least}..{most}")
    return value


def _cursor(request: dict) -> LookupCursor:
    value = request.get("next")
    if value is None:
        return LookupCursor(0, 0)
    if (
        not isinstance(value, list)
        or len(value) != 2
        or any(type(each) is not int or not 0 <= each < 1 << 63 for each in value)
    ):
        raise RequestError("next: as an answer gave it")
    return LookupCursor(value[0] & ~7, value[1])
