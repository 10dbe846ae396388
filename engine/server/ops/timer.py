"""Delayed messages on the link, and the clock that fires them. While nothing is pending no timer runs."""

import json
import logging
from collections.abc import Callable
from typing import Any

import gevent

from engine.errors import PartlyWrittenError
from engine.link import layout
from engine.link.timer import ANY_QUEUE, HEAD, Timer
from engine.server.errors import RequestError
from engine.timers.timers import Timers

log = logging.getLogger("penstock.engine")
AFTER_FAULT_MS = 1000
LIST_MAX = 1000
CELLS_A_REQUEST = 2000
"""Looked at for one page, a few milliseconds of reading."""


class Timing:
    """Answers the operations and calls `Timers.step()` when it asks for it.

    Args:
        on_fired: called after messages have been appended, so that waiting pulls get them.
        die: ends the process.
    """

    def __init__(self, store, timers: Timers, on_fired: Callable[[], None], die: Callable[[str], None]) -> None:
        self._store, self._timers, self._on_fired, self._die = store, timers, on_fired, die
        self._loop = gevent.get_hub().loop
        self._timer: Any = None
        self._due_ms = 0.0
        self.handlers = {
            layout.TIMER_ADD: self._add,
            layout.TIMER_CANCEL: self._cancel,
            layout.TIMER_LIST: self._list,
        }
        self._arm(timers.next_ms())

    def close(self) -> None:
        """Fire nothing any more, and mark what has fired."""
        self._stop()
        self._due_ms = -1
        self._timers.close()

    # -- time

    def _arm(self, wait_ms: int | None) -> None:
        """Have `_on_time` called after so long, or sooner if that was asked for already."""
        if wait_ms is None or self._due_ms < 0:
            return
        due_ms = self._loop.now() * 1000 + wait_ms
        if self._timer is None or due_ms < self._due_ms:
            self._stop()
            self._due_ms = due_ms
            self._timer = self._loop.timer(wait_ms / 1000)
            self._timer.start(self._on_time)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _on_time(self) -> None:
        self._stop()
        try:
            wait_ms = self._timers.step()
        except PartlyWrittenError as error:
            self._die(f"delayed messages were stored in part, which only a restart can tell: {error}")
            return
        except Exception:
            log.exception("timers failed, trying again")
            wait_ms = AFTER_FAULT_MS
        self._arm(wait_ms)
        self._on_fired()

    # -- operations

    def _add(self, connection, request_id: int, payload: bytes) -> None:
        if len(payload) < layout.APPEND_HEAD.size or not 1 <= payload[0] <= 4:
            raise RequestError("TIMER_ADD: durability 1..4, then the messages")
        durability, count = layout.APPEND_HEAD.unpack_from(payload)
        if not 0 < count * HEAD.size <= len(payload):
            raise RequestError("TIMER_ADD: no messages, or more than bytes")
        added = self._timers.add(payload[layout.APPEND_HEAD.size :], count)
        answer = b"".join(layout.APPEND_RESULT.pack(*each) for each in added)
        self._arm(self._timers.next_ms())
        self._answer(connection, layout.TIMER_ADD, request_id, durability, answer)

    def _cancel(self, connection, request_id: int, payload: bytes) -> None:
        request = _json(payload, "TIMER_CANCEL")
        name, shown_id, durability = (request.get(field) for field in ("topic", "id", "durability"))
        if not (isinstance(name, str) and isinstance(shown_id, str) and type(durability) is int):
            raise RequestError("TIMER_CANCEL: topic, id and durability")
        topic = self._store.topic(name)
        code = layout.NOT_CANCELLABLE if topic is None else self._timers.cancel(topic.id, shown_id.encode())
        if code != layout.OK:
            raise RequestError("no such delayed message, or already delivered", code)
        self._arm(self._timers.next_ms())
        self._answer(connection, layout.TIMER_CANCEL, request_id, durability, b"")

    def _answer(self, connection, op: int, request_id: int, durability: int, payload: bytes) -> None:
        if durability == layout.MEMORY:
            connection.send_frame(op, request_id, layout.OK, [payload])
        else:
            self._store.when_durable(
                self._store.end_position, lambda: connection.send_frame(op, request_id, layout.OK, [payload])
            )

    def _list(self, connection, request_id: int, payload: bytes) -> None:
        request = _json(payload, "TIMER_LIST")
        name, start, limit = request.get("topic"), request.get("start"), request.get("limit")
        if type(start) is not int or start < 0 or type(limit) is not int or not 1 <= limit <= LIST_MAX:
            raise RequestError(f"TIMER_LIST: start from 0, limit 1..{LIST_MAX}")
        topic = self._store.topic(name) if isinstance(name, str) else None
        if name is not None and topic is None:
            raise RequestError("the engine has no such topic", layout.UNKNOWN_TOPIC)
        wanted = None if topic is None else topic.id
        rows: list[dict] = []
        cells = CELLS_A_REQUEST
        while start >= 0 and cells > 0 and len(rows) < limit:
            # No more cells than rows that are wanted: a page ends between two cells, never behind one that it left out.
            step = min(cells, limit - len(rows))
            found, start = self._timers.pending(start, step)
            rows += [self._row(timer) for timer in found if wanted in (None, timer.topic_id)]
            cells -= step
        answer = json.dumps({"timers": rows, "next": start}).encode()
        connection.send_frame(layout.TIMER_LIST, request_id, layout.OK, [answer])

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


def _json(payload: bytes, what: str) -> dict:
    try:
        request = json.loads(payload)
    except (ValueError, RecursionError):
        request = None
    if not isinstance(request, dict):
        raise RequestError(f"{what}: a JSON object")
    return request
