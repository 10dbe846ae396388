"""DEPTH: how far the required groups of topics are behind, found at the moment that a proxy asks. See docs/design/0014-limits.md.

Nothing here moves a group, makes one, or keeps anything: a group that has never pulled is behind by all that its topic keeps.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from common.config.definitions import REQUIRED_GROUPS_MAX
from common.limits.depth import Bounds, DepthBreaker, Reason
from engine.delivery import progress
from engine.delivery.delivery import Delivery
from engine.delivery.receipt import topic_hash
from engine.server.codec import checked_name
from engine.server.errors import RequestError
from engine.server.ops.admin_groups import lag_of, newest_record_bytes

log = logging.getLogger("penstock.engine")
TOPICS_A_REQUEST = 1000
FRESH_MS = 150
"""A verdict so young is not found anew when another proxy asks."""
PLACES_A_FRESH = 2000
"""A topic with more queues times groups is looked at in proportion less often: a look is some microseconds each."""
KEPT_MS = 60_000
"""A breaker that nobody asked about for so long is forgotten."""
RULE = 'DEPTH: {"topics": [{"name", "groups", "messages", "bytes", "age_ms"}]}'


class Asked(NamedTuple):
    name: str
    groups: tuple[str, ...]
    bounds: Bounds


class Behind(NamedTuple):
    """One queue as a group has it: `at` is the first message that it has not acknowledged."""

    queue: int
    at: int
    lag: int


@dataclass(slots=True)
class _Kept:
    breaker: DepthBreaker = field(default_factory=DepthBreaker)
    asked: Asked | None = None
    fresh_until_ms: int = 0


class Depths:
    """The breakers of the topics that proxies ask about.

    Args:
        store: the log. delivery: its groups, and the clock by which messages are stored.
    """

    def __init__(self, store, delivery: Delivery) -> None:
        self._store, self._delivery = store, delivery
        self._kept: dict[str, _Kept] = {}
        self._swept_ms = 0
        self.opened = 0

    @property
    def open(self) -> int:
        """Topics whose breaker is open."""
        return sum(kept.breaker.reason is not None for kept in self._kept.values())

    def answer(self, payload: bytes, now_ms: int) -> dict:
        """A reason for each topic, None where it may be sent to. Raises RequestError."""
        reasons = [self._reason(asked, now_ms) for asked in _parse(payload)]
        self._sweep(now_ms)
        return {"topics": [reason and vars(reason) for reason in reasons]}

    def _reason(self, asked: Asked, now_ms: int) -> Reason | None:
        kept = self._kept.setdefault(asked.name, _Kept())
        if kept.asked != asked or now_ms >= kept.fresh_until_ms:
            topic = self._store.topic(asked.name)
            places = topic.queues * len(asked.groups) if topic is not None else 0
            kept.asked, kept.fresh_until_ms = asked, now_ms + FRESH_MS * (1 + places // PLACES_A_FRESH)
            self._judge(kept.breaker, asked, topic)
        return kept.breaker.reason

    def _judge(self, breaker: DepthBreaker, asked: Asked, topic) -> None:
        reason = None
        if topic is not None:
            found = ((group, self._broken(topic, group, asked.bounds, breaker.scale)) for group in asked.groups)
            reason = next((Reason(group, bound) for group, bound in found if bound), None)
        if breaker.judge(reason):
            if reason is not None:
                self.opened += 1
                log.warning(
                    "topic=%s: backlogged, group=%s is behind by its %s", asked.name, reason.group, reason.bound
                )
            else:
                log.info("topic=%s: no longer backlogged", asked.name)

    def _broken(self, topic, group: str, bounds: Bounds, scale: float) -> str | None:
        """The bound, times `scale`, that the group has reached."""
        behind = [each for each in self._behind(topic, group) if each.lag]
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
            # A message was stored before that moment when the first one since then lies behind it.
            if any(self._store.offset_at_time(topic.id, each.queue, since_ms) > each.at for each in behind):
                return "age"
        return None

    def _behind(self, topic, name: str) -> Iterator[Behind]:
        hashed = topic_hash(topic.name)
        group = self._delivery.groups.get(name)
        if group is None and any(True for _ in self._store.progress(progress.group_prefix(name))):
            group = self._delivery.group(name)  # it has pulled before this engine started
        for queue in range(topic.queues):
            first, end = self._store.bounds(topic.id, queue)
            place = group.find(hashed, queue) if group is not None else None
            if place is None:
                yield Behind(queue, first, end - first)
            else:
                yield Behind(queue, max(place.contiguous, first), lag_of(place, first, end))

    def _sweep(self, now_ms: int) -> None:
        if now_ms - self._swept_ms >= KEPT_MS:
            self._swept_ms = now_ms
            self._kept = {name: kept for name, kept in self._kept.items() if now_ms - kept.fresh_until_ms < KEPT_MS}


def _parse(payload: bytes) -> list[Asked]:
    try:
        listed = [
            (each["name"], each["groups"], Bounds(each["messages"], each["bytes"], each["age_ms"]))
            for each in json.loads(payload)["topics"]
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RequestError(RULE) from None
    if len(listed) > TOPICS_A_REQUEST:
        raise RequestError(f"DEPTH: at most {TOPICS_A_REQUEST} topics in one request")
    for _, groups, bounds in listed:
        if not isinstance(groups, list) or len(groups) > REQUIRED_GROUPS_MAX:
            raise RequestError(f"DEPTH: groups: a list of at most {REQUIRED_GROUPS_MAX} names")
        if any(type(bound) is not int or bound < 0 for bound in vars(bounds).values()):
            raise RequestError("DEPTH: messages, bytes and age_ms are whole numbers from 0")
    return [
        Asked(checked_name(name, "topic"), tuple(checked_name(group, "group") for group in groups), bounds)
        for name, groups, bounds in listed
    ]
