"""TIMER_ADD, TIMER_CANCEL and TIMER_LIST: delayed messages on the link."""

from collections.abc import Callable

from engine.link import layout
from engine.link.timer import ANY_QUEUE, HEAD, Timer
from engine.log import Log
from engine.ops.checks import is_whole, json_answer, json_object, shown
from engine.ops.errors import RequestError
from engine.ops.peer import Peer
from engine.timers.timers import Timers

LIST_MAX = 1000
START_MAX = (1 << 63) - 1
CELLS_PER_REQUEST = 2000
"""Cells of the table that one page looks at: a few milliseconds of reading."""


class TimerOps:
    """Serves the three operations.

    Args:
        on_changed: called when the next due time may have changed.
    """

    def __init__(self, store: Log, timers: Timers, on_changed: Callable[[], None]) -> None:
        self._store, self._timers, self._on_changed = store, timers, on_changed

    def add(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """TIMER_ADD: store delayed messages; answered with one result per message."""
        if len(payload) < layout.APPEND_HEAD.size or not 1 <= payload[0] <= 4:
            raise RequestError("TIMER_ADD: durability 1..4, then the messages")
        durability, count = layout.APPEND_HEAD.unpack_from(payload)
        if not 0 < count * HEAD.size <= len(payload):
            raise RequestError("TIMER_ADD: message count 0 or larger than the payload allows")
        added = self._timers.add(payload[layout.APPEND_HEAD.size :], count)
        answer = b"".join(layout.APPEND_RESULT.pack(*each) for each in added)
        self._on_changed()
        self._answer(peer, layout.TIMER_ADD, request_id, durability, answer)

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
