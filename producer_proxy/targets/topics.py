"""Topics on the send path: the definition and the target of each, and its destination there."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from common.config.definitions import TopicDefinition
from common.config.text_values import kafka_cluster_of
from common.contract import Code
from common.wire.calls import Message
from producer_proxy.admission.fences import Fences
from producer_proxy.targets.base import NOBODY, Asker, ResolveError, SendTarget
from producer_proxy.targets.kafka_homes import KafkaHomes
from producer_proxy.targets.sent import MarkingTarget
from producer_proxy.targets.topic_view import TopicView


class TopicRoute(NamedTuple):
    """A topic's target and its destination there."""

    target: SendTarget
    destination: Any

    def binding_of(self, message: Message) -> bytes | int | None:
        """What binds a walked message to one queue: its key, or the queue of its own id. None: any queue."""
        if message.key is not None:
            return message.key.encode()
        return None if message.id is None else self.target.queue_of_id(self.destination, message.id.encode())


class DualWrites(Protocol):
    """Makes targets that write to two others."""

    def of(self, topic: TopicDefinition, primary: SendTarget, secondary: SendTarget) -> SendTarget:
        """The target over these two, which is made at its first use."""

    @property
    def all(self) -> list[SendTarget]: ...


class Targets:
    """The target of each topic: that of its home; one over two others for a topic with a secondary.

    Args:
        default: the target of topics whose home is the engine and that `by_topic` does not name.
        kafka: the targets of Kafka clusters; owned from now on.
        duals: None: topics with a secondary are refused.
    """

    def __init__(
        self, default: SendTarget, by_topic: Mapping[str, SendTarget] | None = None, kafka: KafkaHomes | None = None,
        duals: DualWrites | None = None,
    ) -> None:  # fmt: skip
        self.default, self._by_topic, self._kafka = default, dict(by_topic or {}), kafka or KafkaHomes()
        self.duals = duals

    def of(self, topic: TopicDefinition) -> SendTarget:
        """The topic's target. The first one with a home in Kafka blocks the greenlet for a second at most."""
        home = self._side(topic, topic.home, waits=True)
        if not topic.secondary or self.duals is None:
            return home
        return self.duals.of(topic, home, self._side(topic, topic.secondary, waits=False))

    def _side(self, topic: TopicDefinition, side: str, waits: bool) -> SendTarget:
        cluster = kafka_cluster_of(side)
        if cluster is not None:
            return self._kafka.of(cluster, waits)
        return self._by_topic.get(topic.name, self.default)

    @property
    def all(self) -> list[SendTarget]:
        duals = [] if self.duals is None else self.duals.all
        return list(dict.fromkeys((self.default, *self._by_topic.values(), *self._kafka.all, *duals)))

    @property
    def marking(self) -> list[MarkingTarget]:
        """Targets in use that tell which messages have their outcomes."""
        return [each for each in self.all if isinstance(each, MarkingTarget)]

    def close(self) -> None:
        """Close all targets."""
        for each in dict.fromkeys((self.default, *self._by_topic.values())):
            each.close()
        self._kafka.close()


class Topics:
    """Looks up topics and their routes.

    Args:
        view: the configuration.
        fences: of topics whose home changes.
    """

    def __init__(self, view: TopicView, targets: Targets, fences: Fences | None = None) -> None:
        self._view, self.targets = view, targets
        self.fences = fences or Fences(view, None, time.monotonic)

    def definition(self, name: str) -> TopicDefinition | None:
        return self._view.topic(name)

    def was_deleted(self, name: str) -> bool:
        """Whether the definition of a topic that has none was deleted on purpose."""
        return self._view.topic_was_deleted(name)

    def find(self, names: list[str], asker: Asker = NOBODY) -> dict[str, TopicRoute]:
        """Routes of defined topics; blocks the greenlet while a target is asked for unknown destinations.

        Raises:
            ResolveError: a target did not answer, a topic is not defined any more, or the application may create no
                more topics.
        """
        generation = self._view.generation  # before the look-ups: it may change while a target is asked
        by_target: dict[SendTarget, dict[str, TopicDefinition]] = {}
        for name in dict.fromkeys(names):
            definition = self._view.topic(name)
            if definition is None:
                raise ResolveError(Code.UNKNOWN_TOPIC, f"topic={name}: not defined")
            if definition.secondary and self.targets.duals is None:
                sentence = (
                    f"topic={name}: it is written to two sides, which only a producer proxy does; nothing was stored"
                )
                raise ResolveError(Code.UNAVAILABLE, sentence)
            by_target.setdefault(self.targets.of(definition), {})[name] = definition
        return {
            name: TopicRoute(target, destination)
            for target, definitions in by_target.items()
            for name, destination in target.resolve(definitions, generation, asker).items()
        }
