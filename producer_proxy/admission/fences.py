"""Fences of topics whose home changes: they refuse sends, and end by themselves. Design 0035, "Fence and exact cut".

A topic without a fence costs one attribute per message of the rare path. A fenced topic of the engine leaves the hot
path.
"""

import logging
from collections.abc import Callable
from typing import Protocol

import gevent

from common.config.definitions import Fence, TopicDefinition
from common.config.ended_fences import end_fence
from common.config.errors import ConfigError
from common.config.store import ConfigStore
from common.limited_log import LimitedLog

limited = LimitedLog(logging.getLogger("penstock.producer_proxy"))


class FencedTopics(Protocol):
    """The part of the ConfigView that this module uses."""

    def topic(self, name: str) -> TopicDefinition | None: ...
    @property
    def damage(self) -> str | None: ...


class Fences:
    """The fences that this proxy has met.

    Args:
        store: to end fences whose time is over; None: they stay until an operator removes them.
        now_s: monotonic seconds.
    """

    def __init__(self, view: FencedTopics, store: ConfigStore | None, now_s: Callable[[], float]) -> None:
        self._view, self._store, self._now_s = view, store, now_s
        self._met: dict[str, tuple[Fence, float]] = {}

    def of(self, topic: str) -> Fence | None:
        """The topic's fence; its time counts from the first call that finds it."""
        definition = self._view.topic(topic)
        fence = None if definition is None else definition.fence
        if fence is not None and (topic not in self._met or self._met[topic][0] != fence):
            self._met[topic] = (fence, self._now_s())
        return fence

    def tick(self) -> None:
        """Remove fences whose time is over, each in a greenlet of its own; called now and then in a loop callback."""
        for topic, (fence, met_s) in list(self._met.items()):
            if self.of(topic) != fence:
                del self._met[topic]
            elif self._store is not None and (self._now_s() - met_s) * 1000 >= fence.for_ms:
                self._met[topic] = (fence, self._now_s())  # tried again after as much time, should it fail
                gevent.spawn(self._lift, self._store, topic, fence)

    def _lift(self, store: ConfigStore, topic: str, fence: Fence) -> None:
        """End a fence: a cut that expects the fenced entry fails from then on."""
        try:
            end_fence(store, topic, fence)
        except ConfigError as error:
            limited.warning("topic=%s: the fence of plan %s cannot be removed yet: %s", topic, fence.plan, error)
            return
        if (damage := self._view.damage) is not None:
            limited.warning("topic=%s: the fence of plan %s stays in force: %s", topic, fence.plan, damage)
        else:
            limited.warning("topic=%s: the fence of plan %s was removed after %d ms", topic, fence.plan, fence.for_ms)
