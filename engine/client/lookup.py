"""Searches stored messages by offset, time, id and key: blocking, over one link. Nothing is leased and no group moves.

For an offset or a time the engine's indexes give the start. Ids and keys are looked up by the engine when it keeps a
lookup index of them. Otherwise messages are read over the link, a page at a time:

- An id that Penstock assigned contains its time, so only messages stored around it are read.
- A key has one queue, so only that one is read.
- An id that a client chose can be anywhere: all queues are read from a time on that the caller names.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple, Protocol

from common.ids import parse_id, show_id
from common.keyhash import queue_of
from common.wire.names import find_names
from engine.client.admin import AdminError
from engine.link.codes import OFFSET_OUT_OF_RANGE, OK, TIMEOUT, UNAVAILABLE, UNKNOWN_TOPIC
from engine.link.look_up import decode_look_up_answer, encode_look_up
from engine.link.operations import LOOK_UP_ID, LOOK_UP_KEY, READ
from engine.link.pieces import AnswerPiece
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion, ReadReport
from engine.link.record import split_records

PAGE_MESSAGES, PAGE_BYTES = 2_000, 4 << 20
PAGE_LEAST = 16
EMPTY_PAGES_MAX = 15
"""Maximum number of consecutive empty pages while cold records are fetched; the engine waits up to 2 s for each."""
EARLY_MS = 60_000
"""Tolerance before an id's time: a message is stored earlier when the clocks of proxy and engine differ."""
LATE_MS = 600_000
"""Tolerance after an id's time: a message is stored later when its send waits, at most until its deadline."""
LOOK_UP_MESSAGES = 1_000
"""Limit of one request."""


class Link(Protocol):
    """An AdminClient, or an object with the same methods."""

    def call(self, op: int, payload: bytes) -> tuple[int, bytes]: ...
    def ask(self, verb: str, **options: Any) -> dict[str, Any]: ...


class Stored(NamedTuple):
    """A stored message. `message` is its Thrift binary, `id` in the form that clients see."""

    stored_at_ms: int
    queue: int
    offset: int
    id: str | None
    message: bytes


def queues(link: Link, topic: str) -> int:
    """The topic's number of queues at the engine. Raises AdminError when the engine does not have the topic."""
    found = link.ask("topics", prefix=topic, limit=1)["topics"]
    if not found or found[0]["name"] != topic:
        raise AdminError(UNKNOWN_TOPIC, f"topic={topic}: the engine has no such topic")
    return found[0]["queues"]


def browse(link: Link, topic: str, queue: int, offset: int, limit: int) -> list[Stored]:
    """Up to `limit` messages of a queue from an offset on."""
    return list(islice(_read(link, ReadPosition(topic, queue, offset=offset), limit), limit))


def since(link: Link, topic: str, from_ms: int, limit: int) -> list[Stored]:
    """The first `limit` messages of all queues stored at or after a time, in the order of their times."""
    return list(islice(scan(link, topic, from_ms, limit), limit))


def scan(link: Link, topic: str, from_ms: int, page: int) -> Iterator[Stored]:
    """The messages of all queues stored at or after a time, in the order of their times, to the end at the first page.

    Args:
        page: about half the messages that are in memory at once.
    """
    count = queues(link, topic)
    # One page per queue is in memory at once, so pages are small.
    least = max(PAGE_LEAST, min(page, 2 * page // count))
    return merge(*(_read(link, ReadPosition(topic, queue, at_time_ms=from_ms), least) for queue in range(count)))


def bounds(link: Link, topic: str) -> dict[int, tuple[int, int]]:
    """First offset and end of each queue. Raises AdminError when the engine does not have the topic."""
    found = {}
    for queue in range(queues(link, topic)):
        report, _ = _page(link, ReadPosition(topic, queue), 1)
        if report.min_offset is None or report.end_offset is None:
            raise AdminError(
                report.code, report.error or f"topic={topic} queue={queue}: the engine reported no offsets"
            )
        found[queue] = (report.min_offset, report.end_offset)
    return found


def stream(link: Link, starts: Sequence[ReadPosition]) -> Iterator[Stored]:
    """The messages of queues, each from its position to its end as of now, in the order of their times.

    One page per queue is in memory at once.
    """
    page = max(PAGE_LEAST, PAGE_MESSAGES // max(len(starts), 1))
    return merge(*(_read(link, position, page) for position in starts))


def by_key(
    link: Link, topic: str, key: str, from_ms: int, limit: int, tell: Callable[[str], None] = lambda sentence: None,
    first_queue: int = 0,
) -> list[Stored]:  # fmt: skip
    """Up to `limit` messages with the key, oldest first, stored at or after a time.

    Without a lookup index of keys only the key's present queue is read; messages stored before the topic got more
    queues may be in another one.

    Args:
        tell: called with a sentence when messages have to be read.
        first_queue: the first queue of the topic that takes new messages.
    """
    if _looks_up(link, "key"):
        return list(islice(_look_up(link, LOOK_UP_KEY, from_ms, limit, topic=topic, key=key), limit))
    wanted = key.encode()
    queue = first_queue + queue_of(wanted, queues(link, topic) - first_queue)
    tell(f"the engine keeps no lookup index of keys (--look-up key); reading queue {queue}")
    read = _read(link, ReadPosition(topic, queue, at_time_ms=from_ms))
    found = (each for each in read if wanted in each.message and find_names(each.message)[1] == wanted)
    return list(islice(found, limit))


def by_id(
    link: Link, topic: str, shown: str, from_ms: int | None = None, tell: Callable[[str], None] = lambda sentence: None
) -> list[Stored]:
    """The messages with an id: one, or more when a client used it again after its window.

    Args:
        from_ms: only messages stored at or after it. None: all; without a lookup index of ids, those around the time in
            an assigned id, and all for any other id.
        tell: called with a sentence when messages have to be read.
    """
    if _looks_up(link, "id"):
        return sorted(_look_up(link, LOOK_UP_ID, from_ms or 0, LOOK_UP_MESSAGES, topic=topic, id=shown))
    assigned = parse_id(shown)
    until_ms = None
    if from_ms is None:
        own_ms = EARLY_MS if assigned is None else int.from_bytes(assigned[:6], "big")
        from_ms = max(own_ms - EARLY_MS, 0)
        until_ms = None if assigned is None else own_ms + LATE_MS
    around = "all queues" if until_ms is None else "messages stored around the time in the id"
    tell(f"the engine keeps no lookup index of ids (--look-up id); reading {around}")
    found = []
    for queue in range(queues(link, topic)):
        for each in _read(link, ReadPosition(topic, queue, at_time_ms=from_ms)):
            if until_ms is not None and each.stored_at_ms > until_ms:
                break
            if each.id == shown:
                found.append(each)
    return sorted(found)


def _looks_up(link: Link, family: str) -> bool:
    """Whether the engine keeps a lookup index of this family. One without any does not report the field."""
    return family in link.ask("status").get("look_up", [])


def _look_up(link: Link, op: int, from_ms: int, limit: int, **wanted: str) -> Iterator[Stored]:
    """All matches in the order of the log. Each request is one slice of the search; its answer names the next one."""
    following = None
    while True:
        code, answer = link.call(op, encode_look_up(from_ms, min(limit, LOOK_UP_MESSAGES), following, **wanted))
        if code != OK:
            raise AdminError(code, answer.decode("utf-8", "replace"))
        report, pieces = decode_look_up_answer(answer)
        for piece in pieces:
            yield from messages_of(piece)
        following = report["next"]
        if following is None:
            return


def _read(link: Link, position: ReadPosition, page: int = PAGE_MESSAGES) -> Iterator[Stored]:
    """The queue's messages from a position to the end at the first page. Skips damaged and deleted messages."""
    end, empty = None, 0
    while end is None or position.offset is None or position.offset < end:
        report, answer = _page(link, position, min(page, PAGE_MESSAGES))
        is_gone = report.code == OFFSET_OUT_OF_RANGE and end is not None
        if report.code not in (OK, UNAVAILABLE) and not is_gone:
            raise AdminError(report.code, report.error or "")
        end = report.end_offset if end is None else end
        following = report.min_offset if is_gone else report.next_offset
        empty = 0 if position.offset != following else empty + 1
        where = f"topic={position.topic} queue={position.queue} offset={following}"
        if end is None or following is None:
            raise AdminError(report.code, f"{where}: {report.error or 'the engine reported no offsets'}")
        if empty > EMPTY_PAGES_MAX:
            raise AdminError(TIMEOUT, f"{where}: {empty} empty pages in a row: try again later")
        position = ReadPosition(position.topic, position.queue, offset=following)
        for piece in answer.pieces():
            yield from messages_of(piece)


def _page(link: Link, position: ReadPosition, count: int) -> tuple[ReadReport, ReadAnswer]:
    code, payload = link.call(READ, ReadQuestion([position], count, PAGE_BYTES).encode())
    if code != OK:
        raise AdminError(code, payload.decode("utf-8", "replace"))
    answer = ReadAnswer.decode(payload)
    (report,) = answer.reports
    return report, answer


def messages_of(piece: AnswerPiece) -> Iterator[Stored]:
    """The messages of a piece of an answer to a READ or a look-up."""
    for at, (id16, message) in enumerate(split_records(piece.records)):
        own = None if id16 is not None else find_names(message)[0]
        shown = show_id(id16) if id16 is not None else own.decode("utf-8", "replace") if own is not None else None
        yield Stored(piece.stored_at_ms, piece.queue, piece.first_offset + at, shown, message)
