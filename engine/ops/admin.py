"""ADMIN: the operators' verbs of one engine. JSON in, JSON out; an unknown verb is INVALID."""

import json
from collections.abc import Callable

from engine.delivery.delivery import Delivery
from engine.env.native import NodeClock
from engine.link import layout
from engine.log import Log
from engine.ops.admin_dead_letters import DeadLetterVerbs
from engine.ops.admin_groups import GroupVerbs
from engine.ops.checks import is_whole, json_answer, shown
from engine.ops.errors import RequestError
from engine.ops.peer import Peer

LIST_MAX = 10_000


class Admin:
    """The verbs.

    Args:
        facts: further figures of `status`, beside those of log and delivery.
        stop: called for the verb `stop`; the process ends as after SIGTERM.
        on_stored: called after each verb, which may have stored messages.
    """

    def __init__(
        self, store: Log, delivery: Delivery, clock: NodeClock, facts: Callable[[], dict], stop: Callable[[], None],
        on_stored: Callable[[], None],
    ) -> None:  # fmt: skip
        self._store, self._delivery, self._facts, self._stop = store, delivery, facts, stop
        self._clock, self._on_stored = clock, on_stored
        self._group_verbs = GroupVerbs(store, delivery)
        self._verbs = {
            "status": self._status,
            "topics": self._topics,
            "groups": self._groups,
            "stop": self._ask_to_stop,
            **self._group_verbs.verbs,
            **DeadLetterVerbs(store, delivery).verbs,
        }

    def handle(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Serve ADMIN."""
        answer = self.do(payload, self._clock.monotonic_ms())
        self._on_stored()
        peer.send_frame(layout.ADMIN, request_id, layout.OK, json_answer(answer))

    def do(self, payload: bytes, now_ms: int) -> dict:
        """Answer one request. Raises RequestError."""
        try:
            request = json.loads(payload)
            verb = self._verbs.get(request["verb"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise RequestError('ADMIN: send a JSON object with "verb"') from None
        if verb is None:
            raise RequestError(f"verb {shown(request['verb'])}: use one of {', '.join(self._verbs)}")
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
        raise RequestError(f"{name}: {shown(value)}: use text")
    return value


def _limit(request: dict) -> int:
    value = request.get("limit", 1000)
    if not is_whole(value, 1, LIST_MAX):
        raise RequestError(f"limit: {shown(value)}: use 1..{LIST_MAX}")
    return value
