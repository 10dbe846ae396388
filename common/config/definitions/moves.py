"""Marks that a move leaves in a topic's entry beside `home`: a fence while it is cut, and the record of its last cut."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from common.config.checks import Checks

FENCE_MS_MAX = 60_000
COUNT_MAX = 1 << 62
_TEXT_CHARS_MAX = 300


@dataclass(frozen=True)
class Fence:
    """While a topic has it, producer proxies answer FENCED, or BUFFERED where the topic has a fallback buffer.

    Attributes:
        plan: the migration plan that has set it.
        id: differs between any two fences, so that each is removed by its own time.
        for_ms: so long after it has first refused a message, a proxy removes the fence by itself.
    """

    plan: str
    id: str
    for_ms: int

    def to_value(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def checked(cls, checks: Checks, value: Any) -> Self | None:
        """The fence of a topic's stored value; None: it has none."""
        if value is None or not isinstance(value, Mapping):
            if value is not None:
                checks.fault("fence", "it is not an object with plan, id and for_ms")
            return None
        inner = checks.inside("fence", value)
        plan, id_ = (inner.text(name, 1, _TEXT_CHARS_MAX) for name in ("plan", "id"))
        return cls(plan, id_, inner.integer("for_ms", FENCE_MS_MAX, 1, FENCE_MS_MAX))


@dataclass(frozen=True)
class CutRecord:
    """The exact place of the last change of a topic's home, by queue.

    Attributes:
        epoch: grows with each cut and each rollback of the topic.
        kafka_topic_id: tells a Kafka topic from one that was made again under its name.
        kafka_ends: what lies below was in the engine at the cut; after a rollback: where Kafka's own messages begin.
        engine_firsts: where the engine's own messages begin; after a rollback: what lies below is in Kafka.
    """

    plan: str
    epoch: int
    at_ms: int
    cluster: str
    kafka_topic_id: str
    kafka_ends: tuple[int, ...]
    engine_firsts: tuple[int, ...]

    def kafka_end(self, queue: int) -> int:
        """Of `kafka_ends`; 0 for a partition that was added since."""
        return self.kafka_ends[queue] if queue < len(self.kafka_ends) else 0

    def engine_first(self, queue: int) -> int:
        """Of `engine_firsts`; 0 for a queue that was added since."""
        return self.engine_firsts[queue] if queue < len(self.engine_firsts) else 0

    def to_value(self) -> dict[str, Any]:
        return {**asdict(self), "kafka_ends": [*self.kafka_ends], "engine_firsts": [*self.engine_firsts]}

    @classmethod
    def checked(cls, checks: Checks, value: Any) -> Self | None:
        """The record in a topic's stored value; None: it was never moved."""
        if value is None or not isinstance(value, Mapping):
            if value is not None:
                checks.fault("cut", "it is not an object")
            return None
        inner = checks.inside("cut", value)
        ends = [tuple(inner.list_of(name, int, 10_000)) for name in ("kafka_ends", "engine_firsts")]
        return cls(
            inner.text("plan", 1, _TEXT_CHARS_MAX), inner.integer("epoch", 1, 1, COUNT_MAX),
            inner.integer("at_ms", 0, 0, COUNT_MAX), inner.text("cluster", 1, _TEXT_CHARS_MAX),
            inner.text("kafka_topic_id", 1, _TEXT_CHARS_MAX), *ends,
        )  # fmt: skip
