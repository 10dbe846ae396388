"""Both sides of a pair of targets, and the definitions of the topics that have it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from common.config.definitions import TopicDefinition
from common.config.text_values import ENGINE_HOME
from producer_proxy.targets.base import NOBODY, SendTarget
from producer_proxy.targets.topic_view import TopicView


class Sides:
    """
    Args:
        home, secondary_name: as the topics' settings name them.
    Attributes:
        unequal: topics whose sides have different numbers of queues, each with the sentence that refuses it.
        on_compared: called when `unequal` may have changed.
    """

    def __init__(
        self, home: str, secondary_name: str, primary: SendTarget, secondary: SendTarget, view: TopicView
    ) -> None:
        self._names = home, secondary_name
        self.primary, self.secondary, self._view = primary, secondary, view
        self.unequal: dict[str, str] = {}
        self.on_compared: Callable[[], object] = lambda: None
        self._fit: dict[str, int] = {}  # number of queues by topic, of those that the secondary takes
        self._fit_at = -1  # the generation of the configuration in which they were found

    def definition(self, topic: str) -> TopicDefinition | None:
        """The definition of a topic of this pair; None: it is not defined, or not of this pair."""
        found = self._view.topic(topic)
        return found if found is not None and (found.home, found.secondary) == self._names else None

    def secondary_finds_duplicates(self, topic: str) -> bool:
        """Whether the secondary itself refuses a second copy of an id that a client has set."""
        found = self._view.topic(topic)
        return self._names[1] == ENGINE_HOME and found is not None and found.id_window_ms > 0

    def at_primary(self, topics: Iterable[str]) -> dict[str, Any]:
        """Destinations at the primary, of those that are still of this pair. Blocks. Raises ResolveError."""
        return self.primary.resolve(self._definitions(topics), self._view.generation, NOBODY)

    def at(self, side: SendTarget, topics: Iterable[str]) -> dict[str, Any]:
        """Destinations at one of both sides, of topics that were compared before. Blocks. Raises ResolveError."""
        return self.at_primary(topics) if side is self.primary else self.at_secondary(dict.fromkeys(topics))

    def at_secondary(self, queues: Mapping[str, int | None]) -> dict[str, Any]:
        """Destinations at the secondary, of the topics with as many queues there. Blocks. Raises ResolveError.

        Args:
            queues: number at the primary, by topic; None: it was compared before.
        """
        found = self.secondary.resolve(self._definitions(queues), self._view.generation, NOBODY)
        differing = [name for name, each in found.items() if queues[name] not in (None, each.queues)]
        # A topic may have got more queues since its number was told.
        now = {name: each.queues for name, each in (self.at_primary(differing) if differing else {}).items()}
        return {
            name: untapped(destination)
            for name, destination in found.items()
            if (wanted := now.get(name, queues[name])) is None or self.compare(name, wanted, destination.queues)
        }

    def fit(self, queues: Mapping[str, int]) -> bool:
        """Whether all these topics, each with its number of queues at the primary, may be written to the secondary.

        As at_secondary, which is asked once per topic and version of the configuration. Blocks. Raises ResolveError.
        """
        if self._fit_at != self._view.generation:
            self._fit_at, self._fit = self._view.generation, {}
        if queues.items() <= self._fit.items():
            return True
        found = self.at_secondary(queues)
        self._fit |= {name: queues[name] for name in found}
        return len(found) == len(queues)

    def compare(self, topic: str, queues: int, at_secondary: int) -> bool:
        """Whether both sides have as many queues; remembers the answer."""
        if queues == at_secondary:
            if self.unequal.pop(topic, None):
                self.on_compared()
            return True
        self.unequal[topic] = (
            f"topic={topic}: {self.primary.name} has {queues} queues and {self.secondary.name} {at_secondary}: "
            "a dual write needs as many on both sides; nothing was stored"
        )
        self.on_compared()
        return False

    def _definitions(self, topics: Iterable[str]) -> dict[str, TopicDefinition]:
        return {name: found for name in topics if (found := self.definition(name)) is not None}


def takes(destination: Any, queue: int | None) -> bool:
    """Whether a side has the primary's queue of a message: Kafka may have got a partition before the topic its queue.

    Args:
        destination: of its topic; None: the side takes nothing of it now.
        queue: None: the side chooses it.
    """
    return destination is not None and (queue is None or queue < destination.queues)


def untapped(destination: Any) -> Any:
    """The destination such that what is sent to it is not copied: it may be that of the primary meanwhile."""
    return destination if getattr(destination, "tap", None) is None else destination.with_tap(None)
