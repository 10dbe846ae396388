"""The engine as a target: its brokers' lanes, its topics, its timers.

The hot path uses the same lanes and topics without this object.
"""

from collections.abc import Callable, Mapping, Sequence

from common.config.definitions import TopicDefinition
from common.limits import QueueLimit
from engine.client.append import Destination, Lanes
from engine.client.brokers import Brokers
from engine.client.durability import LANES, lane_of
from producer_proxy.targets.base import DelayedMessage, DelayedOutcome, MessageSlice, OnOutcomes, SendTarget
from producer_proxy.targets.engine_timers import EngineTimers
from producer_proxy.targets.engine_topics import EngineTopics, binds_ids


class EngineTarget(SendTarget):
    """The target.

    Args:
        brokers: owned from now on.
        topics: destinations at these brokers.
    """

    name = "engine"
    features = frozenset(("delay", "cancel", "reply"))

    def __init__(self, brokers: Brokers, topics: EngineTopics) -> None:
        self._brokers, self._topics = brokers, topics
        self._timers = EngineTimers(brokers)

    @property
    def isolates_failures(self) -> bool:  # type: ignore[override]
        """True with several broker groups: each has a breaker."""
        return self._brokers.only is None

    def resolve(self, definitions: Mapping[str, TopicDefinition], generation: int) -> dict[str, Destination]:
        return self._topics.resolve(definitions, generation)

    def served_as(self, durability: int) -> int:
        return LANES[lane_of(durability)].durability

    def binds_ids(self, destination: Destination) -> bool:
        return binds_ids(destination)

    def admits(self, durability: int, destination: Destination, key: bytes | None, taken: int, asked: int) -> bool:
        return self._lanes(durability).lets_in(destination, key, taken, asked)

    def submit(self, durability: int, messages: Sequence[MessageSlice], on_outcomes: OnOutcomes) -> bool:
        return self._lanes(durability).submit(messages, on_outcomes)

    def ask(
        self, durability: int, message: MessageSlice, token_for: Callable[[int], bytes | None], on_outcomes: OnOutcomes
    ) -> None:
        self._lanes(durability).ask(*message, token_for, on_outcomes)

    def add_delayed(
        self, durability: int, messages: Sequence[DelayedMessage], deadline_s: float
    ) -> list[DelayedOutcome]:
        return self._timers.add(durability, messages, deadline_s)

    def cancel(self, durability: int, topic: str, shown_id: str, deadline_s: float) -> tuple[int, str | None]:
        return self._timers.cancel(durability, topic, shown_id, deadline_s)

    @property
    def up(self) -> bool:
        return all(lanes.up for lanes in self._brokers.lanes)

    @property
    def idle(self) -> bool:
        return self._brokers.idle

    @property
    def queue_limits(self) -> list[QueueLimit]:
        return self._brokers.queue_limits

    def health(self) -> bool | str:
        return self._brokers.health()

    def close(self) -> None:
        self._brokers.close()

    def _lanes(self, durability: int) -> Lanes:
        return self._brokers.lanes[lane_of(durability)]
