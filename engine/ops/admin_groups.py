"""ADMIN's verbs for groups: groups, lag, reset."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from engine.delivery import progress
from engine.delivery.creations import GROUP, TOPIC
from engine.delivery.delivery import Delivery
from engine.delivery.queue_cursor import QueueCursor
from engine.delivery.upkeep import GroupUpkeep
from engine.errors import CorruptionError, OffsetOutOfRangeError, UnreadableError
from engine.link.codes import UNKNOWN_TOPIC
from engine.log import Log
from engine.log.types import Topic
from engine.ops.admin_topics import UNUSED_MAX, days_of
from engine.ops.checks import checked_name, is_whole, shown
from engine.ops.errors import RequestError
from engine.ops.message_state import message_state

UNKNOWN_GROUP = 103
TO_RULE = 'to: use "earliest", "latest", an offset, {"time_ms": …}, {"shift": …} or {"offsets": {queue: offset}}'
OFFSET_MAX = (1 << 63) - 1
AGE_FIRST_MS, AGE_STEP_MS, AGE_SHARE = 1_000, 10, 100
"""Of an estimated age: where the search begins, and how near it comes."""


class GroupVerbs:
    """Requests about the groups of one engine."""

    def __init__(self, store: Log, delivery: Delivery, upkeep: GroupUpkeep) -> None:
        self._store, self._delivery, self._upkeep = store, delivery, upkeep

    @property
    def verbs(self) -> dict[str, Any]:
        """Name -> function(request, now_ms)."""
        return {
            "lag": self._lag,
            "reset": self._reset,
            "forget": self._forget,
            "unused": self._unused,
            "created": self._created,
        }

    def kept_groups(self, prefix: str) -> Iterator[str]:
        """Groups whose progress the log keeps; a name comes once per queue."""
        for raw, _ in self._store.progress(b"g" + prefix.encode()):
            parts = progress.split_key(raw)
            if parts is not None:
                yield parts[0]

    def _lag(self, request: dict, now_ms: int) -> dict:
        """One row per queue.

        `detail` adds bytes and seconds, which cost some index look-ups and one small read per queue. `offset`, with a
        queue, adds the state of its message.
        """
        detail, offset = request.get("detail") is True, request.get("offset")
        if offset is not None and not (is_whole(offset, 0, OFFSET_MAX) and "queue" in request):
            raise RequestError("offset: use a whole number, with a queue")
        rows = [(place, self._row(place, detail)) for place in self._places(request)]
        if offset is not None:
            for place, row in rows:
                row["message"] = message_state(place, offset, now_ms)
        return {"group": request["group"], "queues": [row for _, row in rows]}

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
            "withheld": place.in_flight.withheld_messages,
            "lag": lag,
        }
        if detail:
            row["lag_bytes"] = lag * newest_record_bytes(self._store, place.topic_id, place.queue) if lag else 0
            row["lag_s"] = self._age_s(place, at) if lag else 0.0
        return row

    def _age_s(self, place: QueueCursor, offset: int) -> float:
        """The age of the message at `offset`, at most by AGE_STEP_MS or an AGE_SHARE of it too high.

        Each look into the index of times costs microseconds, so it begins at short ages, and ends where it is near.
        """
        wall_ms = self._delivery.wall_ms()
        age_ms, younger_ms = AGE_FIRST_MS, 0
        while age_ms < wall_ms and self._is_older(place, offset, wall_ms - age_ms):
            younger_ms, age_ms = age_ms, 4 * age_ms
        age_ms = min(age_ms, wall_ms)
        while age_ms - younger_ms > max(AGE_STEP_MS, age_ms // AGE_SHARE):
            middle = (younger_ms + age_ms) // 2
            if self._is_older(place, offset, wall_ms - middle):
                younger_ms = middle
            else:
                age_ms = middle
        return age_ms / 1000

    def _is_older(self, place: QueueCursor, offset: int, at_ms: int) -> bool:
        """Whether the message was stored before this time."""
        return self._store.offset_at_time(place.topic_id, place.queue, at_ms) > offset

    def _reset(self, request: dict, now_ms: int) -> dict:
        """Move every queue of the group's topic; `preview` only reports the moves. `create` takes an unknown group, too.

        `to` as offsets by queue moves just those queues: a preview's rows, made as they were shown.
        """
        target_of = self._target(request.get("to"))
        topic = self._store.topic(checked_name(request.get("topic"), "topic"))
        if topic is None:
            raise RequestError(f"topic {shown(request['topic'])}: the engine has no such topic", UNKNOWN_TOPIC)
        is_new = request.get("create") is True and not request.get("preview")
        group = self._delivery.group(checked_name(request.get("group"), "group") if is_new else self._known(request))
        chosen = _chosen(group.cursors(topic, 0), request)
        offsets = _offsets(request.get("to"))
        if offsets is not None:
            chosen = [place for place in chosen if str(place.queue) in offsets]
            if len(chosen) < len(offsets):
                raise RequestError(f"to: topic {topic.name} has {topic.queues} queues: use their numbers")
        self._check_offset(request.get("to"), topic, chosen)
        moved = []
        for place in chosen:
            first, end = self._store.bounds(place.topic_id, place.queue)
            target = min(max(target_of(place, first, end), first), end)
            moved.append({"queue": place.queue, "old": place.contiguous, "new": target})
            if not request.get("preview"):
                self._delivery.move(group, place, target, now_ms)
        self._delivery.write_progress()
        return {"moved": moved}

    def _check_offset(self, to: object, topic: Topic, chosen: list[QueueCursor]) -> None:
        """Raise RequestError for an offset beyond the end of one of the queues. Queues of other engines are empty here."""
        offsets = _offsets(to)
        for place in chosen if offsets is not None or is_whole(to, 0, OFFSET_MAX) else ():
            offset: int = to if offsets is None else offsets[str(place.queue)]  # type: ignore[assignment]
            end = self._store.bounds(place.topic_id, place.queue)[1]
            is_own = self._delivery.ownership.nearest(topic.name, place.queue, topic.queues) == place.queue
            if offset > end and is_own:
                raise RequestError(
                    f"to: offset {offset} is beyond the end of queue {place.queue} of topic {topic.name}, which is {end}: "
                    'use "latest" for the end, or Unix milliseconds after an @ for a time'
                )

    def _forget(self, request: dict, now_ms: int) -> dict:
        """Delete the group's progress. Refused while a consumer uses the group."""
        name = self._known(request)
        loaded = self._delivery.groups.get(name)
        self._delivery.write_progress()
        if loaded is not None and not self._delivery.unload(loaded):
            raise RequestError(
                f"group {shown(name)}: in use: a pull waits or a message is leased: stop its consumers, and try again "
                "when the leases have ended"
            )
        return {"group": name, "forgotten": self._upkeep.forget(name)}

    def _unused(self, request: dict, now_ms: int) -> dict:
        """Groups that expire after as many days: what `--expire-days` would forget."""
        return {"groups": list(islice(self._upkeep.unused(24 * days_of(request)), UNUSED_MAX))}

    def _created(self, request: dict, now_ms: int) -> dict:
        """How many groups and topics count against an application's quotas."""
        application = checked_name(request.get("application"), "application")
        counts = self._delivery.creations
        return {"groups": counts.count(GROUP, application), "family_topics": counts.count(TOPIC, application)}

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
        offsets = _offsets(to)
        if offsets is not None:
            return lambda place, first, end: offsets[str(place.queue)]
        raise RequestError(TO_RULE)

    def _places(self, request: dict) -> list[QueueCursor]:
        places = self._delivery.group(self._known(request)).load_all()
        topic = request.get("topic")
        return _chosen([place for place in places if topic in (None, place.topic_name)], request)

    def _known(self, request: dict) -> str:
        """The name of the request's group. Raises RequestError for one that the engine does not know."""
        name = checked_name(request.get("group"), "group")
        if name not in self._delivery.groups and not progress.is_kept(self._store, name):
            raise RequestError(
                f"group {shown(name)}: unknown group: it has never pulled from this engine", UNKNOWN_GROUP
            )
        return name


def lag_of(place: QueueCursor, first: int, end: int) -> int:
    """Messages of first..end that the group has not acknowledged."""
    return max(0, end - max(place.next_offset, first)) + place.in_flight.messages


def newest_record_bytes(store: Log, topic_id: int, queue: int) -> int:
    """The size of the queue's newest record, which nearly always is in memory, for estimates. 0: it cannot be read."""
    try:
        pieces = store.read(topic_id, queue, store.bounds(topic_id, queue)[1] - 1, 1, 1)
    except (CorruptionError, OffsetOutOfRangeError, UnreadableError):
        return 0
    return len(pieces[0].records) if pieces else 0


def _offsets(to: object) -> dict[str, int] | None:
    """Offsets by queue, its number as text, of a target that names them so; None: another kind of target, or none."""
    offsets = to["offsets"] if isinstance(to, dict) and list(to) == ["offsets"] else None
    if not isinstance(offsets, dict) or not all(is_whole(each, 0, OFFSET_MAX) for each in offsets.values()):
        return None
    return offsets


def _chosen(places: list[QueueCursor], request: dict) -> list[QueueCursor]:
    queue = request.get("queue")
    return [place for place in places if queue in (None, place.queue)]
