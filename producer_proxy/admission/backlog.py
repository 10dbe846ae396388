"""Lag breakers: topics whose required groups are too far behind, as the engine reports several times a second.

Only topics that are in use and have a backlog breaker are asked about.
"""

import json
from collections.abc import Callable
from itertools import islice

from common.config.definitions import TopicDefinition
from common.limits.quota_slices import Answer

TOPICS_PER_TICK = 500
"""With more topics in use, each is asked about less often in proportion.

A question costs the engine some microseconds per queue.
"""


class TopicBacklogs:
    """Lag breakers of the topics in use.

    Args:
        ask: called as (payload, answer) with a BACKLOG request; see QuotaSlices.
        is_used: called as (name); whether the topic still has a destination.
        on_change: called with the name of a topic whose breaker has opened or closed.

    While the engine does not answer, its last answer counts: a lagging group cannot catch up without the engine.
    """

    def __init__(
        self,
        ask: Callable[[bytes, Answer], object],
        is_used: Callable[[str], bool],
        on_change: Callable[[str], None],
    ) -> None:
        self._ask, self._is_used, self._on_change = ask, is_used, on_change
        self._watched: dict[str, TopicDefinition] = {}
        self._open: dict[str, str] = {}

    @property
    def open(self) -> int:
        """Number of watched topics that are backlogged."""
        return len(self._open)

    def fit(self, topic: TopicDefinition) -> None:
        """Watch a topic in use, under this definition."""
        if topic.has_backlog_breaker:
            self._watched[topic.name] = topic
        else:
            self._forget(topic.name)

    def follow(self, definition: Callable[[str], TopicDefinition | None]) -> None:
        """Apply a change of the configuration to all watched topics, because refused topics never reach `fit`."""
        for name in list(self._watched):
            topic = definition(name)
            if topic is not None:
                self.fit(topic)
            else:
                self._forget(name)

    def _forget(self, name: str) -> None:
        self._watched.pop(name, None)
        self._open.pop(name, None)

    def reason(self, name: str) -> str | None:
        """A sentence when sends to the topic must be refused."""
        return self._open.get(name)

    def tick(self) -> None:
        """Ask about the next topics in turn."""
        asked = self._next()
        if not asked:
            return
        listed = [
            {
                "name": topic.name,
                "groups": topic.required_groups,
                "messages": topic.backlog_messages,
                "bytes": topic.backlog_bytes,
                "age_ms": topic.backlog_age_ms,
            }
            for topic in asked
        ]
        self._ask(json.dumps({"topics": listed}).encode(), lambda code, payload: self._answered(asked, code, payload))

    def _next(self) -> list[TopicDefinition]:
        turn = list(islice(self._watched.values(), TOPICS_PER_TICK))
        for topic in turn:
            self._watched[topic.name] = self._watched.pop(topic.name)  # to the end: other topics come first next time
            if not self._is_used(topic.name):
                self._forget(topic.name)
        return [topic for topic in turn if topic.name in self._watched]

    def _answered(self, asked: list[TopicDefinition], code: int, payload: bytes) -> None:
        if code:
            return
        for topic, reason in zip(asked, json.loads(payload)["topics"], strict=True):
            if self._watched.get(topic.name) is not topic:
                continue  # changed or removed since the question
            was_open = topic.name in self._open
            if reason is None:
                self._open.pop(topic.name, None)
            else:
                self._open[topic.name] = _sentence(topic, reason)
            if was_open != (reason is not None):
                self._on_change(topic.name)


def _sentence(topic: TopicDefinition, reason: dict[str, str]) -> str:
    bound = {
        "messages": f"{topic.backlog_messages} messages",
        "bytes": f"{topic.backlog_bytes} bytes",
        "age": f"{topic.backlog_age_ms / 1000:g} s",
    }[reason["bound"]]
    return f"topic={topic.name}: group {reason['group']} is too far behind, the bound is {bound}; nothing was stored"
