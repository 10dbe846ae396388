"""ADMIN: the operators' verbs of one engine. JSON in, JSON out; an unknown verb is INVALID."""

import json
from collections.abc import Callable

from engine.delivery.delivery import Delivery
from engine.delivery.topic_expiry import TopicExpiry
from engine.delivery.upkeep import GroupUpkeep
from engine.env.native import NodeClock
from engine.link import layout
from engine.log import Log
from engine.ops.admin_dead_letters import DeadLetterVerbs
from engine.ops.admin_groups import GroupVerbs
from engine.ops.admin_topics import TopicVerbs, limit_of, text_of
from engine.ops.checks import json_answer, shown
from engine.ops.confirmed_times import ConfirmedTimes
from engine.ops.errors import RequestError
from engine.ops.peer import Peer


class Admin:
    """The verbs.

    Args:
        facts: further figures of `status`, beside those of log and delivery.
        stop: called for the verb `stop`; the process ends as after SIGTERM.
        on_stored: called after each verb, which may have stored messages.
        groups, topics: forget unused groups and topics.
        confirmed_times: times of confirmation, in a group with replicas.
    """

    def __init__(
        self, store: Log, delivery: Delivery, clock: NodeClock, facts: Callable[[], dict], stop: Callable[[], None],
        on_stored: Callable[[], None], groups: GroupUpkeep, topics: TopicExpiry,
        confirmed_times: ConfirmedTimes | None = None,
    ) -> None:  # fmt: skip
        self._store, self._delivery, self._facts, self._stop = store, delivery, facts, stop
        self._clock, self._on_stored = clock, on_stored
        self._group_verbs = GroupVerbs(store, delivery, groups)
        self._verbs = {
            "status": self._status,
            "groups": self._groups,
            "stop": self._ask_to_stop,
            "accept_clock": self._accept_clock,
            **self._group_verbs.verbs,
            **TopicVerbs(store, delivery, topics).verbs,
            **DeadLetterVerbs(store, delivery).verbs,
            **({} if confirmed_times is None else {"confirmed": confirmed_times.answer}),
        }

    def handle(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Serve ADMIN. Raises RequestError."""
        answer = self.do(payload, self._clock.monotonic_ms())
        self._on_stored()
        # A topic's id, a reset and a purge are told only once a power cut can no longer take them back.
        told_from = self._store.topics_position if "topics" in answer else 0
        self._store.when_durable(
            self._store.end_position if answer.keys() & {"moved", "purged"} else told_from,
            lambda: peer.send_frame(layout.ADMIN, request_id, layout.OK, json_answer(answer)),
        )

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
            "disk": self._disk(),
            "retention": {"held": store.retention.held, "clock_ahead_ms": store.retention.clock_ahead_ms},
            "look_up": list(store.look_up.families),
            "parked_pulls": self._delivery.parked,
            **{name: getattr(counts, name) for name in counts.__slots__},
            **self._facts(),
        }

    def _disk(self) -> dict:
        disk = self._store.retention.disk
        return {"level": disk.level.name.lower(), "free_bytes": disk.free, "sentence": disk.sentence}

    def _accept_clock(self, request: dict, now_ms: int) -> dict:
        """Let messages grow old by the wall clock as it is now."""
        retention = self._store.retention
        ahead_ms = retention.clock_ahead_ms
        retention.accept_clock()
        return {"accepted_ms": ahead_ms}

    def _groups(self, request: dict, now_ms: int) -> dict:
        prefix, after = text_of(request, "prefix"), text_of(request, "after")
        names = {name for name in self._delivery.groups if name.startswith(prefix)}
        names.update(self._group_verbs.kept_groups(prefix))
        return {"groups": sorted(name for name in names if name > after)[: limit_of(request)]}

    def _ask_to_stop(self, request: dict, now_ms: int) -> dict:
        self._stop()
        return {"stopping": True}
