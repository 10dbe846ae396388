"""ADMIN's verbs for topics: topics, purge_topic, unused_topics."""

from itertools import islice
from typing import Any

from engine.delivery.delivery import Delivery
from engine.delivery.topic_expiry import TopicExpiry
from engine.link.codes import UNKNOWN_TOPIC
from engine.log import Log
from engine.log.port import TopicLog
from engine.log.types import Topic
from engine.ops.checks import checked_name, is_whole, shown
from engine.ops.errors import RequestError

LIST_MAX = 10_000
UNUSED_MAX = 1_000
OFFSET_MAX = (1 << 63) - 1


class TopicVerbs:
    """Requests about the topics of one engine."""

    def __init__(self, store: Log, delivery: Delivery, expiry: TopicExpiry) -> None:
        self._store, self._delivery, self._expiry = store, delivery, expiry

    @property
    def verbs(self) -> dict[str, Any]:
        """Name -> function(request, now_ms)."""
        return {"topics": self._topics, "purge_topic": self._purge, "unused_topics": self._unused}

    def _topics(self, request: dict, now_ms: int) -> dict:
        return list_topics(self._store, request)

    def _purge(self, request: dict, now_ms: int) -> dict:
        """Delete the messages below `ends`, an offset per queue by its number as text; without it, list what there is."""
        topic = self._store.topic(checked_name(request.get("topic"), "topic"))
        if topic is None:
            raise RequestError(f"topic {shown(request['topic'])}: the engine has no such topic", UNKNOWN_TOPIC)
        bounds = {queue: self._store.bounds(topic.id, queue) for queue in range(topic.queues)}
        rows = [{"queue": queue, "first": first, "end": end} for queue, (first, end) in bounds.items() if first < end]
        ends = request.get("ends")
        if ends is None:
            return {"purged": rows}
        if not isinstance(ends, dict) or not all(is_whole(end, 0, OFFSET_MAX) for end in ends.values()):
            raise RequestError(f'ends: {shown(ends)}: use {{"queue": offset}}')
        done = []
        for row in rows:
            row["end"] = min(row["end"], ends.get(str(row["queue"]), 0))
            if row["first"] < row["end"]:
                done.append(row)
        self._store.purge(topic.id, {row["queue"]: row["end"] for row in done})
        self._follow(topic)
        return {"purged": done}

    def _unused(self, request: dict, now_ms: int) -> dict:
        """Topics that expire after as many days: what `--expire-days` would forget."""
        found = self._expiry.unused(24 * days_of(request))
        return {
            "unused": [{"id": each.id, "name": each.name, "queues": each.queues} for each in islice(found, UNUSED_MAX)]
        }

    def _follow(self, topic: Topic) -> None:
        """Have the loaded groups pass over what is gone, also what they have leased."""
        for group in list(self._delivery.groups.values()):
            for cursor in group.topics.get(topic.id, ()):
                cursor.see(*self._store.bounds(topic.id, cursor.queue))
                self._delivery.on_moved(cursor)


def list_topics(store: TopicLog, request: dict) -> dict:
    """The answer to `topics`. Raises RequestError."""
    found = store.topics(text_of(request, "prefix"), text_of(request, "after"), limit_of(request))
    return {"topics": [{"id": topic.id, "name": topic.name, "queues": topic.queues} for topic in found]}


def text_of(request: dict, name: str) -> str:
    """The request's text of that name; empty without one. Raises RequestError."""
    value = request.get(name, "")
    if not isinstance(value, str):
        raise RequestError(f"{name}: {shown(value)}: use text")
    return value


def days_of(request: dict) -> int:
    """The request's `days`. Raises RequestError."""
    days = request.get("days")
    if not is_whole(days, 0, 3_660):
        raise RequestError(f"days: {shown(days)}: use 0..3660")
    return days


def limit_of(request: dict) -> int:
    """The request's `limit`. Raises RequestError."""
    value = request.get("limit", 1000)
    if not is_whole(value, 1, LIST_MAX):
        raise RequestError(f"limit: {shown(value)}: use 1..{LIST_MAX}")
    return value
