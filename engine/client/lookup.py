"""Looking into a topic by offset, time, id and key: blocking, over one link; nothing is leased and no group moves.

For an offset and a time the engine's indexes say where to begin. Ids and keys are looked up by the engine, if it keeps files of them.
Without those, messages are read: an id that Penstock assigned tells its own time, so only what was stored around that is read; a key lies
in its own queue. An id that a client chose tells nothing, so all queues are read from a moment on that the caller names. What is read goes
over the link, a page at a time.
"""

import json
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple, Protocol

from common.ids import parse_id, show_id
from common.keyhash import queue_of
from common.wire.names import find_names
from engine.client.admin import AdminError
from engine.client.codec import Piece, decode_look_up_answer, decode_read_answer, encode_read, split_records
from engine.link import layout

PAGE_MESSAGES, PAGE_BYTES = 2_000, 4 << 20
PAGE_LEAST = 16
EMPTY_PAGES_MAX = 15
"""In a row, for cold records that are not fetched yet; the engine waits up to 2 s before it gives one."""
EARLY_MS = 60_000
"""How long before its id's own time a message may seem to be stored: the clocks of proxy and engine may differ."""
LATE_MS = 600_000
"""How long after it: a send may wait for its deadline."""
LOOK_UP_MESSAGES = 1_000
"""A request."""


class Link(Protocol):
    """An AdminClient, or what speaks like one."""

    def call(self, op: int, payload: bytes) -> tuple[int, bytes]: ...
    def ask(self, verb: str, **options: Any) -> dict[str, Any]: ...


class Stored(NamedTuple):
    """A stored message. `message` is its Thrift binary, `id` as people see it."""

    stored_at_ms: int
    queue: int
    offset: int
    id: str | None
    message: bytes


def queues(link: Link, topic: str) -> int:
    """How many queues the engine has of the topic. Raises AdminError when it has none."""
    found = link.ask("topics", prefix=topic, limit=1)["topics"]
    if not found or found[0]["name"] != topic:
        raise AdminError(layout.UNKNOWN_TOPIC, f"topic={topic}: the engine has no such topic")
    return found[0]["queues"]


def browse(link: Link, topic: str, queue: int, offset: int, limit: int) -> list[Stored]:
    """Up to `limit` messages of a queue from an offset on."""
    return list(islice(_read(link, topic, queue, {"offset": offset}, limit), limit))


def since(link: Link, topic: str, from_ms: int, limit: int) -> list[Stored]:
    """The first `limit` messages that were stored at or after a moment, of all queues, in the order of their times."""
    count = queues(link, topic)
    # A page of each queue is held at once, so these are small: twice what is wanted in all, where the queues have about as much each.
    page = max(PAGE_LEAST, min(limit, 2 * limit // count))
    found = (_read(link, topic, queue, {"at_time_ms": from_ms}, page) for queue in range(count))
    return list(islice(merge(*found), limit))


def by_key(
    link: Link, topic: str, key: str, from_ms: int, limit: int, tell: Callable[[str], None] = lambda sentence: None
) -> list[Stored]:
    """Up to `limit` messages with the key, oldest first, of those stored at or after a moment.

    Where the engine has no files of keys, in the key's queue as it is now: what was stored before the topic got more queues may lie in
    another.

    Args:
        tell: called with a sentence when messages have to be read.
    """
    if _looks_up(link, "key"):
        return list(islice(_look_up(link, layout.LOOK_UP_KEY, from_ms, limit, topic=topic, key=key), limit))
    wanted = key.encode()
    queue = queue_of(wanted, queues(link, topic))
    tell(f"the engine keeps no files of keys (--look-up key); reading queue {queue}")
    read = _read(link, topic, queue, {"at_time_ms": from_ms})
    found = (each for each in read if wanted in each.message and find_names(each.message)[1] == wanted)
    return list(islice(found, limit))


def by_id(
    link: Link, topic: str, shown: str, from_ms: int | None = None, tell: Callable[[str], None] = lambda sentence: None
) -> list[Stored]:
    """The messages with an id: one, or more where a client used it again after its window.

    Args:
        from_ms: stored at or after it. None: the oldest; but where the engine has no files of ids, around the time that an assigned id
        tells, and from the oldest for any other.
        tell: called with a sentence when messages have to be read.
    """
    if _looks_up(link, "id"):
        return sorted(_look_up(link, layout.LOOK_UP_ID, from_ms or 0, LOOK_UP_MESSAGES, topic=topic, id=shown))
    assigned = parse_id(shown)
    until_ms = None
    if from_ms is None:
        own_ms = EARLY_MS if assigned is None else int.from_bytes(assigned[:6], "big")
        from_ms = max(own_ms - EARLY_MS, 0)
        until_ms = None if assigned is None else own_ms + LATE_MS
    around = "all queues" if until_ms is None else "what was stored around the time in the id"
    tell(f"the engine keeps no files of ids (--look-up id); reading {around}")
    found = []
    for queue in range(queues(link, topic)):
        for each in _read(link, topic, queue, {"at_time_ms": from_ms}):
            if until_ms is not None and each.stored_at_ms > until_ms:
                break
            if each.id == shown:
                found.append(each)
    return sorted(found)


def _looks_up(link: Link, family: str) -> bool:
    """Whether the engine has files of it. One that knows of none says nothing."""
    return family in link.ask("status").get("look_up", [])


def _look_up(link: Link, op: int, from_ms: int, limit: int, **wanted: str) -> Iterator[Stored]:
    """All that there is, in the order of the log; a request is one slice of the search, and says where the next one goes on."""
    following = None
    while True:
        asked = {**wanted, "from_ms": from_ms, "limit": min(limit, LOOK_UP_MESSAGES), "next": following}
        code, answer = link.call(op, json.dumps(asked).encode())
        if code != layout.OK:
            raise AdminError(code, answer.decode("utf-8", "replace"))
        report, pieces = decode_look_up_answer(answer)
        for piece in pieces:
            yield from _messages(piece)
        following = report["next"]
        if following is None:
            return


def _read(link: Link, topic: str, queue: int, position: dict[str, int], page: int = PAGE_MESSAGES) -> Iterator[Stored]:
    """The queue's messages from there up to the end that it has at the first page. Passes over what is damaged or deleted meanwhile."""
    end, empty = None, 0
    while end is None or position["offset"] < end:
        report, pieces = _page(link, topic, queue, position, min(page, PAGE_MESSAGES))
        gone = report["code"] == layout.OFFSET_OUT_OF_RANGE and end is not None
        if report["code"] not in (layout.OK, layout.UNAVAILABLE) and not gone:
            raise AdminError(report["code"], report["error"])
        end = report["end_offset"] if end is None else end
        following = report["min_offset"] if gone else report["next_offset"]
        empty = 0 if position.get("offset") != following else empty + 1
        if empty > EMPTY_PAGES_MAX:
            raise AdminError(
                layout.TIMEOUT, f"topic={topic} queue={queue} offset={following}: could not be read in time"
            )
        position = {"offset": following}
        for piece in pieces:
            yield from _messages(piece)


def _page(
    link: Link, topic: str, queue: int, position: dict[str, int], count: int
) -> tuple[dict[str, Any], list[Piece]]:
    asked = {"topic": topic, "queue": queue, **position}
    code, answer = link.call(layout.READ, encode_read([asked], max_messages=count, max_bytes=PAGE_BYTES))
    if code != layout.OK:
        raise AdminError(code, answer.decode("utf-8", "replace"))
    (report,), pieces = decode_read_answer(answer)
    return report, pieces


def _messages(piece: Piece) -> Iterator[Stored]:
    for at, (id16, message) in enumerate(split_records(piece.records)):
        own = None if id16 is not None else find_names(message)[0]
        shown = show_id(id16) if id16 is not None else own.decode("utf-8", "replace") if own is not None else None
        yield Stored(piece.stored_at_ms, piece.queue, piece.first_offset + at, shown, message)
