"""BACKLOG: lag of the required groups of topics, computed when a proxy asks. See docs/design/0014-limits.md.

No query moves or creates a group. A group that has never pulled counts as fully behind.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from common.config.definitions import REQUIRED_GROUPS_MAX
from common.limited_log import LimitedLog
from common.limits.backlog import BacklogBreaker, Bounds, Reason
from engine.delivery import progress
from engine.delivery.delivery import Delivery
from engine.delivery.receipt import topic_hash
from engine.env.native import NodeClock
from engine.link import layout
from engine.log import Log
from engine.log.types import Topic
from engine.ops.admin_groups import lag_of, newest_record_bytes
from engine.ops.checks import checked_name, json_answer
from engine.ops.errors import RequestError
from engine.ops.peer import Peer

limited = LimitedLog(logging.getLogger("penstock.engine"))
TOPICS_PER_REQUEST = 1000
FRESH_MS = 150
"""Time for which an answer serves all proxies before it is computed again."""
CURSORS_PER_FRESH = 2000
"""Cursors (queues times groups) per FRESH_MS. Each costs microseconds, so larger topics are computed less often."""
KEPT_MS = 60_000
"""Time without a request after which a breaker is forgotten."""
LAGS_RULE = 'BACKLOG: lags: use {"topic", "group"}'
RULE = 'BACKLOG: send {"topics": [{"name", "groups", "messages", "bytes", "age_ms"}]}'


class AskedTopic(NamedTuple):
    """One topic of a request."""

    name: str
    groups: tuple[str, ...]
    bounds: Bounds


class QueueLag(NamedTuple):
    """The lag of a group in one queue. `at`: the first message that the group has not acknowledged."""

    queue: int
    at: int
    lag: int


@dataclass(slots=True)
class _TopicBreaker:
    breaker: BacklogBreaker = field(default_factory=BacklogBreaker)
    asked: AskedTopic | None = None
    fresh_until_ms: int = 0


class BacklogBreakers:
    """The backlog breakers of the topics that proxies ask about; serves BACKLOG.

    Attributes:
        opened: number of times that a breaker has opened.
    """

    def __init__(self, store: Log, delivery: Delivery, clock: NodeClock) -> None:
        self._store, self._delivery, self._clock = store, delivery, clock
        self._kept: dict[str, _TopicBreaker] = {}
        self._swept_ms = 0
        self.opened = 0

    @property
    def open(self) -> int:
        """Topics whose breaker is open."""
        return sum(kept.breaker.reason is not None for kept in self._kept.values())

    def handle(self, peer: Peer, request_id: int, payload: bytes) -> None:
        """Answer whether each topic accepts sends, or why not."""
        answer = self.answer(payload, self._clock.monotonic_ms())
        answer |= self._lags(payload)
        peer.send_frame(layout.BACKLOG, request_id, layout.OK, json_answer(answer))

    def answer(self, payload: bytes, now_ms: int) -> dict:
        """A reason per topic; None when the topic accepts sends. Raises RequestError."""
        reasons = [self._reason(asked, now_ms) for asked in _parse(payload)]
        self._sweep(now_ms)
        return {"topics": [reason and vars(reason) for reason in reasons]}

    def _lags(self, payload: bytes) -> dict:
        """Per queue the messages that a group has not acknowledged, and their estimated bytes, if the request asks.

        Messages on their way to the dead-letter queue count: they are not acknowledged yet.
        """
        if b'"lags"' not in payload or (asked := json.loads(payload).get("lags")) is None:
            return {}
        if not isinstance(asked, dict) or asked.keys() != {"topic", "group"}:
            raise RequestError(LAGS_RULE)
        topic, group = checked_name(asked["topic"], "topic"), checked_name(asked["group"], "group")
        known = self._store.topic(topic)
        if known is None:
            return {"lags": []}
        found = [*self._queue_lags(known, group)]
        sizes = [newest_record_bytes(self._store, known.id, each.queue) if each.lag else 0 for each in found]
        return {"lags": [[each.lag, each.lag * size] for each, size in zip(found, sizes, strict=True)]}

    def _reason(self, asked: AskedTopic, now_ms: int) -> Reason | None:
        kept = self._kept.setdefault(asked.name, _TopicBreaker())
        if kept.asked != asked or now_ms >= kept.fresh_until_ms:
            topic = self._store.topic(asked.name)
            places = topic.queues * len(asked.groups) if topic is not None else 0
            kept.asked, kept.fresh_until_ms = asked, now_ms + FRESH_MS * (1 + places // CURSORS_PER_FRESH)
            self._judge(kept.breaker, asked, topic)
        return kept.breaker.reason

    def _judge(self, breaker: BacklogBreaker, asked: AskedTopic, topic: Topic | None) -> None:
        reason = None
        if topic is not None:
            found = ((group, self._broken(topic, group, asked.bounds, breaker.scale)) for group in asked.groups)
            reason = next((Reason(group, bound) for group, bound in found if bound), None)
        if breaker.judge(reason):
            if reason is not None:
                self.opened += 1
                limited.warning(
                    "topic=%s: backlogged: group=%s has reached its bound of %s", asked.name, reason.group, reason.bound
                )
            else:
                limited.info("topic=%s: no longer backlogged", asked.name, about=asked.name)

    def _broken(self, topic: Topic, group: str, bounds: Bounds, scale: float) -> str | None:
        """The bound, times `scale`, that the group has reached; None: it has reached none."""
        behind = [each for each in self._queue_lags(topic, group) if each.lag]
        messages = sum(each.lag for each in behind)
        size = (
            sum(each.lag * newest_record_bytes(self._store, topic.id, each.queue) for each in behind)
            if bounds.bytes
            else 0
        )
        if bound := bounds.broken(messages, size, scale):
            return bound
        if bounds.age_ms:
            since_ms = self._delivery.wall_ms() - int(scale * bounds.age_ms)
            # The oldest unacknowledged message is too old when the first message stored since then comes after it.
            if any(self._store.offset_at_time(topic.id, each.queue, since_ms) > each.at for each in behind):
                return "age"
        return None

    def _queue_lags(self, topic: Topic, name: str) -> Iterator[QueueLag]:
        hashed = topic_hash(topic.name)
        group = self._delivery.groups.get(name)
        if group is None and any(True for _ in self._store.progress(progress.group_prefix(name))):
            group = self._delivery.group(name)  # it pulled before this engine started
        for queue in range(topic.queues):
            first, end = self._store.bounds(topic.id, queue)
            place = group.find(hashed, queue) if group is not None else None
            if place is None:
                yield QueueLag(queue, first, end - first)
            else:
                yield QueueLag(queue, max(place.contiguous, first), lag_of(place, first, end))

    def _sweep(self, now_ms: int) -> None:
        if now_ms - self._swept_ms >= KEPT_MS:
            self._swept_ms = now_ms
            self._kept = {name: kept for name, kept in self._kept.items() if now_ms - kept.fresh_until_ms < KEPT_MS}


def _parse(payload: bytes) -> list[AskedTopic]:
    try:
        listed = [
            (each["name"], each["groups"], Bounds(each["messages"], each["bytes"], each["age_ms"]))
            for each in json.loads(payload)["topics"]
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RequestError(RULE) from None
    if len(listed) > TOPICS_PER_REQUEST:
        raise RequestError(f"BACKLOG: {len(listed)} topics: send at most {TOPICS_PER_REQUEST} per request")
    for _, groups, bounds in listed:
        if not isinstance(groups, list) or len(groups) > REQUIRED_GROUPS_MAX:
            raise RequestError(f"BACKLOG: groups: use a list of at most {REQUIRED_GROUPS_MAX} names")
        if any(type(bound) is not int or bound < 0 for bound in vars(bounds).values()):
            raise RequestError("BACKLOG: messages, bytes, age_ms: use whole numbers from 0")
    return [
        AskedTopic(checked_name(name, "topic"), tuple(checked_name(group, "group") for group in groups), bounds)
        for name, groups, bounds in listed
    ]
