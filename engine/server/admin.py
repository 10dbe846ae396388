"""ADMIN: what operators ask of one engine. JSON in, JSON out; an unknown verb is INVALID."""

import json
from collections.abc import Callable, Iterator

from engine.link.layout import UNKNOWN_TOPIC
from engine.queue import progress
from engine.queue.delivery import Delivery
from engine.queue.place import Place
from engine.server.codec import checked_name
from engine.server.dead_letters import DeadLetterVerbs
from engine.server.errors import RequestError

LIST_MAX = 10_000


class Admin:
    """The verbs.

    Args:
        facts: what `status` tells beside the log's and delivery's own figures.
        stop: called for the verb `stop`, after which the process ends as if it had got SIGTERM.
    """

    def __init__(self, store, delivery: Delivery, facts: Callable[[], dict], stop: Callable[[], None]) -> None:
        self._store, self._delivery, self._facts, self._stop = store, delivery, facts, stop
        self._verbs = {
            "status": self._status,
            "topics": self._topics,
            "groups": self._groups,
            "lag": self._lag,
            "reset": self._reset,
            "stop": self._ask_to_stop,
            **DeadLetterVerbs(store, delivery).verbs,
        }

    def do(self, payload: bytes, now_ms: int) -> dict:
        """Answer one request. Raises RequestError."""
        try:
            request = json.loads(payload)
            verb = self._verbs.get(request["verb"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise RequestError('ADMIN: a JSON object with "verb"') from None
        if verb is None:
            raise RequestError(f"verb: one of {', '.join(self._verbs)}")
        return verb(request, now_ms)

    def _status(self, request: dict, now_ms: int) -> dict:
        store, counts = self._store, self._delivery.counts
        return {
            "log_id": store.log_id.hex(),
            "epoch": store.epoch,
            "end_position": store.end_position,
            "durable_position": store.durable_position,
            "earliest_ms": store.retention.earliest_ms,
            "log_bytes": store.retention.log_bytes,
            "disk": {"level": store.retention.disk.level.name.lower(), "free_bytes": store.retention.disk.free},
            "parked_pulls": self._delivery.parked,
            **{name: getattr(counts, name) for name in counts.__slots__},
            **self._facts(),
        }

    def _topics(self, request: dict, now_ms: int) -> dict:
        found = self._store.topics(_text(request, "prefix"), _text(request, "after"), _limit(request))
        return {"topics": [{"id": topic.id, "name": topic.name, "queues": topic.queues} for topic in found]}

    def _groups(self, request: dict, now_ms: int) -> dict:
        prefix, after = _text(request, "prefix"), _text(request, "after")
        names = {name for name in self._delivery.groups if name.startswith(prefix)}
        names.update(self._kept_groups(prefix))
        return {"groups": sorted(name for name in names if name > after)[: _limit(request)]}

    def _kept_groups(self, prefix: str) -> Iterator[str]:
        for raw, _ in self._store.progress(b"g" + prefix.encode()):
            parts = progress.split_key(raw)
            if parts is not None:
                yield parts[0]

    def _lag(self, request: dict, now_ms: int) -> dict:
        rows = []
        for place in self._places(request):
            first, end = self._store.bounds(place.topic_id, place.queue)
            rows.append({
                "topic": place.topic_name,
                "queue": place.queue,
                "first": first,
                "end": end,
                "progress": max(place.contiguous, first),
                "in_flight": place.open.messages,
                "lag": max(0, end - max(place.next_offset, first)) + place.open.messages,
            })  # fmt: skip
        return {"group": request["group"], "queues": rows}

    def _reset(self, request: dict, now_ms: int) -> dict:
        """Move every queue of the group's topic; `preview` tells without doing."""
        to = request.get("to")
        if to not in ("earliest", "latest") and (type(to) is not int or to < 0):
            raise RequestError('to: "earliest", "latest" or an offset')
        name = checked_name(request.get("topic"), "topic")
        topic = self._store.topic(name)
        if topic is None:
            raise RequestError("the engine has no such topic", UNKNOWN_TOPIC)
        group = self._delivery.group(checked_name(request.get("group"), "group"))
        moved = []
        for place in self._chosen(group.places(topic, 0), request):
            first, end = self._store.bounds(place.topic_id, place.queue)
            target = {"earliest": first, "latest": end}.get(to, to) if isinstance(to, str) else to
            target = min(max(target, first), end)
            moved.append({"queue": place.queue, "old": place.contiguous, "new": target})
            if not request.get("preview"):
                self._delivery.move(group, place, target, now_ms)
        self._delivery.write_progress()
        return {"moved": moved}

    def _ask_to_stop(self, request: dict, now_ms: int) -> dict:
        self._stop()
        return {"stopping": True}

    def _places(self, request: dict) -> list[Place]:
        name = checked_name(request.get("group"), "group")
        kept = any(progress.split_key(raw) for raw, _ in self._store.progress(progress.group_prefix(name)))
        if name not in self._delivery.groups and not kept:
            raise RequestError("no such group has ever pulled", 103)
        places = self._delivery.group(name).load_all()
        topic = request.get("topic")
        return self._chosen([place for place in places if topic in (None, place.topic_name)], request)

    @staticmethod
    def _chosen(places: list[Place], request: dict) -> list[Place]:
        queue = request.get("queue")
        return [place for place in places if queue in (None, place.queue)]


def _text(request: dict, name: str) -> str:
    value = request.get(name, "")
    if not isinstance(value, str):
        raise RequestError(f"{name}: text")
    return value


def _limit(request: dict) -> int:
    value = request.get("limit", 1000)
    if type(value) is not int or not 1 <= value <= LIST_MAX:
        raise RequestError(f"limit: 1..{LIST_MAX}")
    return value
