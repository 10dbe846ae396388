"""ADMIN's verbs for groups: groups, lag, reset."""

from collections.abc import Callable, Iterator
from typing import Any

from engine.delivery import progress
from engine.delivery.delivery import Delivery
from engine.delivery.queue_cursor import QueueCursor
from engine.errors import CorruptionError, OffsetOutOfRangeError
from engine.link.codes import UNKNOWN_TOPIC
from engine.log import Log
from engine.ops.checks import checked_name, is_whole, shown
from engine.ops.errors import RequestError

UNKNOWN_GROUP = 103
TO_RULE = 'to: use "earliest", "latest", an offset, {"time_ms": …} or {"shift": …}'
OFFSET_MAX = (1 << 63) - 1


class GroupVerbs:
    """Requests about the groups of one engine."""

    def __init__(self, store: Log, delivery: Delivery) -> None:
        self._store, self._delivery = store, delivery

    @property
    def verbs(self) -> dict[str, Any]:
        """Name -> function(request, now_ms)."""
        return {"lag": self._lag, "reset": self._reset}

    def kept_groups(self, prefix: str) -> Iterator[str]:
        """Groups whose progress the log keeps; a name comes once per queue."""
        for raw, _ in self._store.progress(b"g" + prefix.encode()):
            parts = progress.split_key(raw)
            if parts is not None:
                yield parts[0]

    def _lag(self, request: dict, now_ms: int) -> dict:
        """One row per queue.

        `detail` adds bytes and seconds, which cost some index look-ups and one small read per queue.
        """
        detail = request.get("detail") is True
        places = self._places(request)
        return {"group": request["group"], "queues": [self._row(place, detail) for place in places]}

    def _row(self, place: QueueCursor, detail: bool) -> dict:
        first, end = self._store.bounds(place.topic_id, place.queue)
        at = max(place.contiguous, first)
        lag = lag_of(place, first, end)
        row = {
            "topic": place.topic_name,
            "queue": place.queue,
            "first": first,
            "end": end,
            "progress": at,
            "in_flight": place.in_flight.messages,
            "lag": lag,
        }
        if detail:
            row["lag_bytes"] = lag * newest_record_bytes(self._store, place.topic_id, place.queue) if lag else 0
            row["lag_s"] = self._age_s(place, at) if lag else 0.0
        return row

    def _age_s(self, place: QueueCursor, offset: int) -> float:
        """The age of the message at `offset`: binary search for the last time whose indexed offset is not above it."""
        wall_ms = self._delivery.wall_ms()
        low, high = 0, wall_ms + 1
        while low + 1 < high:
            middle = (low + high) // 2
            if self._store.offset_at_time(place.topic_id, place.queue, middle) <= offset:
                low = middle
            else:
                high = middle
        return max(0, wall_ms - low) / 1000

    def _reset(self, request: dict, now_ms: int) -> dict:
        """Move every queue of the group's topic; `preview` only reports the moves."""
        target_of = self._target(request.get("to"))
        topic = self._store.topic(checked_name(request.get("topic"), "topic"))
        if topic is None:
            raise RequestError(f"topic {shown(request['topic'])}: the engine has no such topic", UNKNOWN_TOPIC)
        group = self._delivery.group(checked_name(request.get("group"), "group"))
        moved = []
        for place in _chosen(group.cursors(topic, 0), request):
            first, end = self._store.bounds(place.topic_id, place.queue)
            target = min(max(target_of(place, first, end), first), end)
            moved.append({"queue": place.queue, "old": place.contiguous, "new": target})
            if not request.get("preview"):
                self._delivery.move(group, place, target, now_ms)
        self._delivery.write_progress()
        return {"moved": moved}

    def _target(self, to: object) -> Callable[[QueueCursor, int, int], int]:
        """A function of cursor, first and end offset that gives the group's new offset. Raises RequestError."""
        if to == "earliest":
            return lambda place, first, end: first
        if to == "latest":
            return lambda place, first, end: end
        if is_whole(to, 0, OFFSET_MAX):
            return lambda place, first, end: to  # type: ignore[return-value]
        if isinstance(to, dict) and list(to) == ["shift"] and is_whole(to["shift"], -OFFSET_MAX, OFFSET_MAX):
            return lambda place, first, end: place.contiguous + to["shift"]
        if isinstance(to, dict) and list(to) == ["time_ms"] and is_whole(to["time_ms"], 0, OFFSET_MAX):
            return lambda place, first, end: self._store.offset_at_time(place.topic_id, place.queue, to["time_ms"])
        raise RequestError(TO_RULE)

    def _places(self, request: dict) -> list[QueueCursor]:
        name = checked_name(request.get("group"), "group")
        kept = any(progress.split_key(raw) for raw, _ in self._store.progress(progress.group_prefix(name)))
        if name not in self._delivery.groups and not kept:
            raise RequestError(
                f"group {shown(name)}: unknown group: it has never pulled from this engine", UNKNOWN_GROUP
            )
        places = self._delivery.group(name).load_all()
        topic = request.get("topic")
        return _chosen([place for place in places if topic in (None, place.topic_name)], request)


def lag_of(place: QueueCursor, first: int, end: int) -> int:
    """Messages of first..end that the group has not acknowledged."""
    return max(0, end - max(place.next_offset, first)) + place.in_flight.messages


def newest_record_bytes(store: Log, topic_id: int, queue: int) -> int:
    """The size of the queue's newest record, which nearly always is in memory, for estimates. 0: it cannot be read."""
    try:
        pieces = store.read(topic_id, queue, store.bounds(topic_id, queue)[1] - 1, 1, 1)
    except (CorruptionError, OffsetOutOfRangeError):
        return 0
    return len(pieces[0].records) if pieces else 0


def _chosen(places: list[QueueCursor], request: dict) -> list[QueueCursor]:
    queue = request.get("queue")
    return [place for place in places if queue in (None, place.queue)]
