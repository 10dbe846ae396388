"""ADMIN: what operators ask of one engine. JSON in, JSON out; an unknown verb is INVALID."""

import json
from collections.abc import Callable

from engine.delivery.delivery import Delivery
from engine.server.errors import RequestError
from engine.server.ops.admin_dead_letters import DeadLetterVerbs
from engine.server.ops.admin_groups import GroupVerbs

LIST_MAX = 10_000


class Admin:
    """The verbs.

    Args:
        facts: what `status` tells beside the log's and delivery's own figures.
        stop: called for the verb `stop`, after which the process ends as if it had got SIGTERM.
    """

    def __init__(self, store, delivery: Delivery, facts: Callable[[], dict], stop: Callable[[], None]) -> None:
        self._store, self._delivery, self._facts, self._stop = store, delivery, facts, stop
        self._group_verbs = GroupVerbs(store, delivery)
        self._verbs = {
            "status": self._status,
            "topics": self._topics,
            "groups": self._groups,
            "stop": self._ask_to_stop,
            **self._group_verbs.verbs,
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
            "log_side_bytes": store.retention.side_bytes,
            "disk": {"level": store.retention.disk.level.name.lower(), "free_bytes": store.retention.disk.free},
            "look_up": list(store.look_up.families),
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
        names.update(self._group_verbs.kept_groups(prefix))
        return {"groups": sorted(name for name in names if name > after)[: _limit(request)]}

    def _ask_to_stop(self, request: dict, now_ms: int) -> dict:
        self._stop()
        return {"stopping": True}


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
