"""Topics whose home is Kafka as destinations of the hot path: it looks them up in one table with those of the engine."""

from collections.abc import Callable, Mapping
from typing import Any

from common.config.definitions import TopicDefinition
from engine.client.append import Destination, Destinations
from engine.client.durability import number_of
from producer_proxy.targets.engine_topics import BacklogMarks
from producer_proxy.targets.topic_view import TopicView


class KafkaHotTopics:
    """
    Args:
        view: the configuration.
        known: the hot path's table.
        buffer: the fallback buffer: a topic that it takes, or has something of, stays on the rare path.
        fit: as of EngineTopics.
    """

    def __init__(
        self, view: TopicView, known: Destinations, buffer: BacklogMarks,
        fit: Callable[[Destination, TopicDefinition], None],
    ) -> None:  # fmt: skip
        self._view, self._known, self._buffer, self._fit = view, known, buffer, fit

    def learn(self, home: str, lane: Any, definitions: Mapping[str, TopicDefinition], generation: int) -> None:
        """Put topics into the table, but those that are a side of two.

        Args:
            home: the name of the lane's cluster, as definitions have it.
        """
        for name, definition in definitions.items():
            if definition.home != home or definition.secondary:
                continue
            found = self._known.get(name.encode())
            if found is None or found.lane is not lane or not _agrees(found, definition):
                found = _destination(definition, lane)
                self._known.put(found)
            self._mark(found, definition)
            found.checked_at = generation & 0xFFFFFFFF

    def is_right(self, destination: Destination) -> bool:
        """Whether a destination with a lane still agrees with its topic's definition; see EngineTopics."""
        definition = self._view.topic(destination.name.decode())
        lane: Any = destination.lane
        if definition is None or definition.home != lane.home or definition.secondary:
            return False
        if not _agrees(destination, definition):
            return False
        self._mark(destination, definition)
        return True

    def _mark(self, destination: Destination, definition: TopicDefinition) -> None:
        self._fit(destination, definition)
        name = definition.name
        destination.diverted = self._buffer.has_backlog(name)
        destination.buffered = destination.diverted or self._buffer.takes(name)


def _destination(definition: TopicDefinition, lane: Any) -> Destination:
    made = Destination(
        definition.name.encode(), 0, definition.queues, number_of(definition.durability), definition.body_bytes_max
    )
    made.made_ms, made.lane = definition.made_ms, lane
    return made


def _agrees(destination: Destination, definition: TopicDefinition) -> bool:
    return (
        destination.made_ms == definition.made_ms
        and destination.durability == number_of(definition.durability)
        and destination.body_bytes_max == definition.body_bytes_max
    )
