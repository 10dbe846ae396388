"""LOOK_UP_ID and LOOK_UP_KEY: each request is one slice of a search.

It runs in the log's thread and is answered in the loop.
"""

import json
from collections.abc import Callable
from functools import partial

from engine.link import layout
from engine.link.integers import U32
from engine.link.pieces import PIECE
from engine.link.receipt import NO_TOKEN
from engine.log import Log
from engine.log.lookup_index.lookup_file import ID, KEY, Family
from engine.log.lookup_index.search import FoundRecord, LookupCursor, LookupQuery, LookupSearch
from engine.ops.checks import is_whole, json_object, shown
from engine.ops.errors import RequestError
from engine.ops.peer import Peer
from engine.ops.waiting import WaitingRequests

LIMIT_DEFAULT, LIMIT_MAX = 100, 1000
BYTES_MAX = 4 << 20
NAME_BYTES_MAX = 65_536
TIME_MAX = 1 << 62
POSITION_MAX = (1 << 63) - 1
RUNNING_MAX = 64
"""Searches that wait for the thread, each for a quarter of a second at most."""
LOOK_UP_UNREAD_MAX = 64 << 20
"""Output of a link above which it is closed in place of an answer: all that run may have begun before the first one."""


class LookUps:
    """Serves the two operations.

    Args:
        waiting: remembers which peer waits for which search.
        in_loop: runs a function in the loop's thread; callable from the thread of the searches.

    Attributes:
        requests: served so far.
        read_bytes: bytes of segments without look-up files that searches have read.
    """

    def __init__(self, store: Log, waiting: WaitingRequests, in_loop: Callable[[Callable[[], None]], None]) -> None:
        self._store, self._waiting, self._in_loop = store, waiting, in_loop
        self._running = 0
        self.requests = self.read_bytes = 0
        self.by_id = partial(self._look_up, ID, "id", layout.LOOK_UP_ID)
        self.by_key = partial(self._look_up, KEY, "key", layout.LOOK_UP_KEY)

    def close(self) -> None:
        """Stop searching. Blocks until the slice that runs has ended."""
        self._store.look_up.close()

    def _look_up(self, family: Family, field: str, op: int, peer: Peer, request_id: int, payload: bytes) -> None:
        request = json_object(payload, "LOOK_UP: send a JSON object")
        if family.name not in self._store.look_up.families:
            raise RequestError(f"this engine has no look-up by {family.name}: start it with --look-up {family.name}")
        name = request.get("topic")
        topic = self._store.topic(name) if isinstance(name, str) else None
        if topic is None:
            raise RequestError(f"topic {shown(name)}: the engine has no such topic", layout.UNKNOWN_TOPIC)
        if self._running >= RUNNING_MAX:
            raise RequestError(f"{RUNNING_MAX} look-ups are waiting already: retry later", layout.OVERLOADED)
        wanted = LookupQuery(
            family, topic.id, _name(request, field), _number(request, "from_ms", 0, 0, TIME_MAX),
            _number(request, "to_ms", TIME_MAX, 0, TIME_MAX), _number(request, "limit", LIMIT_DEFAULT, 1, LIMIT_MAX), BYTES_MAX,
        )  # fmt: skip
        search = self._store.look_up.search(wanted, _cursor(request))
        self._running += 1
        self.requests += 1
        with_records = request.get("records") is not False
        finish = partial(self._finish, peer, op, request_id, search, with_records)

        def refuse() -> None:
            peer.send_frame(op, request_id, layout.SHUTTING_DOWN, [b"the engine is shutting down"])

        self._waiting.add(peer, request_id, search.cancel, refuse)
        self._store.look_up.start(search, partial(self._in_loop, finish))

    def _finish(self, peer: Peer, op: int, request_id: int, search: LookupSearch, with_records: bool) -> None:
        self._running -= 1
        if search.is_cancelled:
            return
        self._waiting.remove(peer, request_id)
        if peer.backlog > LOOK_UP_UNREAD_MAX:
            peer.close("it does not read its answers to LOOK_UP")
            return
        if search.error:
            peer.send_frame(op, request_id, layout.UNAVAILABLE, [search.error.encode()])
            return
        found = self._readable(search)
        self.read_bytes += search.read_bytes
        report = {"next": search.cursor, "read_bytes": search.read_bytes}
        peer.send_frame(op, request_id, layout.OK, _answer(report, found, with_records))

    def _readable(self, search: LookupSearch) -> list[FoundRecord]:
        """The found messages from their queues' readable offsets on.

        Retention has not deleted the segments of the others yet.
        """
        first = {
            queue: self._store.bounds(search.topic_id, queue)[0] for queue in {found.queue for found in search.found}
        }
        return [found for found in search.found if found.offset >= first[found.queue]]


def _answer(report: dict, found: list[FoundRecord], with_records: bool) -> list[bytes]:
    """A report as JSON, and one piece per message; pieces have no record when only positions are wanted."""
    head = json.dumps(report).encode()
    parts = [U32.pack(len(head)), head, U32.pack(len(found))]
    for queue, offset, stored_at_ms, record in found:
        data = record if with_records else b""
        parts += (PIECE.pack(NO_TOKEN, offset, 0, queue, 1, 0, stored_at_ms, len(data), 0), data)
    return parts


def _name(request: dict, field: str) -> bytes:
    value = request.get(field)
    encoded = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else b""
    if not 1 <= len(encoded) <= NAME_BYTES_MAX:
        raise RequestError(f"{field}: {len(encoded)} bytes of text: use 1..{NAME_BYTES_MAX}")
    return encoded


def _number(request: dict, field: str, default: int, minimum: int, maximum: int) -> int:
    value = request.get(field)
    if value is None:
        return default
    if not is_whole(value, minimum, maximum):
        raise RequestError(f"{field}: {shown(value)}: use {minimum}..{maximum}")
    return value


def _cursor(request: dict) -> LookupCursor:
    value = request.get("next")
    if value is None:
        return LookupCursor(0, 0)
    if not isinstance(value, list) or len(value) != 2 or not all(is_whole(each, 0, POSITION_MAX) for each in value):
        raise RequestError("next: use the value of an earlier answer")
    return LookupCursor(value[0] & ~7, value[1])
