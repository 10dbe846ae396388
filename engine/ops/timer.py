"""TIMER_ADD, TIMER_ADD_AGAIN, TIMER_CANCEL and TIMER_LIST: delayed messages on the link."""

from collections.abc import Callable, Iterator

from engine.errors import DiskFullError
from engine.link import layout
from engine.link.append import RESEND_HEAD
from engine.link.timer import ANY_QUEUE, HEAD, Timer, parse_all
from engine.log import Log
from engine.log.format import CONTROL_TOPIC_ID, KIND_TIMER
from engine.ops.checks import is_whole, json_answer, json_object, shown
from engine.ops.errors import RequestError
from engine.ops.peer import Peer
from engine.timers.timers import Added, Timers

LIST_MAX = 1000
START_MAX = (1 << 63) - 1
CELLS_PER_REQUEST = 2000
"""Cells of the table that one page looks at: a few milliseconds of reading."""


class TimerOps:
    """Serves the four operations.

    Args:
        on_changed: called when the next due time may have changed.
    """

    def __init__(self, store: Log, timers: Timers, on_changed: Callable[[], None]) -> None:
        self._store, self._timers, self._on_changed = store, timers, on_changed

    def add(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """TIMER_ADD: store delayed messages; answered with one result per message."""
        durability, count, records = _read_add(payload)
        added = self._timers.add(records, count)
        self._answer_added(peer, layout.TIMER_ADD, request_id, durability, added)

    def add_again(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """TIMER_ADD_AGAIN: answer messages that the log has from a position on, and store the others.

        Equal messages with one id count as one. A message of which the log cannot say whether it is stored gets TIMEOUT.
        """
        if len(payload) < RESEND_HEAD.size:
            raise RequestError("TIMER_ADD_AGAIN: a position of 8 bytes, then a TIMER_ADD")
        (position,) = RESEND_HEAD.unpack_from(payload)
        durability, count, records = _read_add(payload[RESEND_HEAD.size :])
        sent = list(parse_all(records, count))
        found, is_complete = self._store.batch_search.find_parts(
            (CONTROL_TOPIC_ID, KIND_TIMER),
            (timer.identity for _, timer in sent if timer is not None),
            _identities,
            position,
        )
        missing = [at for at, (_, timer) in enumerate(sent) if timer is None or timer.identity not in found]
        added = [Added(layout.OK)] * count
        answers = [Added(layout.TIMEOUT)] * len(missing)
        if is_complete and missing:
            answers = self._add_missing([sent[at][0] for at in missing], len(missing) == count)
        for at, answer in zip(missing, answers, strict=True):
            added[at] = answer
        self._answer_added(peer, layout.TIMER_ADD_AGAIN, request_id, durability, added)

    def _add_missing(self, records: list[bytes], is_all: bool) -> list[Added]:
        """Raises DiskFullError when nothing else was asked: the other messages are stored, and have to be answered so."""
        try:
            return self._timers.add(b"".join(records), len(records))
        except DiskFullError as error:
            if is_all:
                raise
            return [Added(error.code)] * len(records)

    def _answer_added(self, peer: Peer, op: int, request_id: int, durability: int, added: list[Added]) -> None:
        self._on_changed()
        self._answer(peer, op, request_id, durability, b"".join(layout.APPEND_RESULT.pack(*each) for each in added))

    def cancel(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """TIMER_CANCEL: withdraw a pending message."""
        request = json_object(payload, "TIMER_CANCEL: send a JSON object")
        name, shown_id, durability = (request.get(field) for field in ("topic", "id", "durability"))
        if not (isinstance(name, str) and isinstance(shown_id, str) and type(durability) is int):
            raise RequestError("TIMER_CANCEL: send topic, id and durability")
        topic = self._store.topic(name)
        code = layout.NOT_CANCELLABLE if topic is None else self._timers.cancel(topic.id, shown_id.encode())
        if code != layout.OK:
            raise RequestError("no such delayed message, or already delivered", code)
        self._on_changed()
        self._answer(peer, layout.TIMER_CANCEL, request_id, durability, b"")

    def _answer(self, peer: Peer, op: int, request_id: int, durability: int, payload: bytes) -> None:
        if durability == layout.MEMORY:
            peer.send_frame(op, request_id, layout.OK, [payload])
        else:
            self._store.when_durable(
                self._store.end_position, lambda: peer.send_frame(op, request_id, layout.OK, [payload])
            )

    def list(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """TIMER_LIST: one page of pending messages."""
        request = json_object(payload, "TIMER_LIST: send a JSON object")
        name, start, limit = request.get("topic"), request.get("start"), request.get("limit")
        if not is_whole(start, 0, START_MAX) or not is_whole(limit, 1, LIST_MAX):
            raise RequestError(
                f"TIMER_LIST: start {shown(start)}, limit {shown(limit)}: use a start from 0 and a limit of 1..{LIST_MAX}"
            )
        topic = self._store.topic(name) if isinstance(name, str) else None
        if name is not None and topic is None:
            raise RequestError(f"topic {shown(name)}: the engine has no such topic", layout.UNKNOWN_TOPIC)
        wanted = None if topic is None else topic.id
        rows: list[dict] = []
        cells = CELLS_PER_REQUEST
        while start >= 0 and cells > 0 and len(rows) < limit:
            # No more cells than rows are wanted: a page ends between two cells, so the next page misses none.
            step = min(cells, limit - len(rows))
            found, start = self._timers.pending(start, step)
            rows += [self._row(timer) for timer in found if wanted in (None, timer.topic_id)]
            cells -= step
        peer.send_frame(layout.TIMER_LIST, request_id, layout.OK, json_answer({"timers": rows, "next": start}))

    def _row(self, timer: Timer) -> dict:
        topic = self._store.topic_by_id(timer.topic_id)
        return {
            "topic": "" if topic is None else topic.name,
            "id": timer.shown_id.decode("utf-8", "replace"),
            "due_ms": timer.due_ms,
            "queue": None if timer.queue == ANY_QUEUE else timer.queue,
            "bytes": len(timer.record),
            "gap_ms": timer.gap_ms,
            "rounds": timer.times + 1,
        }


def _read_add(payload: bytes) -> tuple[int, int, bytes]:
    """(durability, count, records) of a TIMER_ADD. Raises RequestError."""
    if len(payload) < layout.APPEND_HEAD.size or not 1 <= payload[0] <= 4:
        raise RequestError("TIMER_ADD: durability 1..4, then the messages")
    durability, count = layout.APPEND_HEAD.unpack_from(payload)
    if not 0 < count * HEAD.size <= len(payload):
        raise RequestError("TIMER_ADD: message count 0 or larger than the payload allows")
    return durability, count, payload[layout.APPEND_HEAD.size :]


def _identities(records: bytes) -> Iterator[bytes]:
    """Identities of the timers of a stored batch."""
    for _, timer in parse_all(records, len(records) // HEAD.size):
        if timer is None:
            return
        yield timer.identity
