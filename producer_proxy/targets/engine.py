"""The engine as a target: its brokers' lanes, its topics, its timers.

The hot path uses the same lanes and topics without this object.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from common.config.definitions import TopicDefinition
from common.limits import QueueLimit
from common.placement import queue_of_id
from engine.client.append import NATIVE, Destination, Lanes
from engine.client.brokers import Brokers
from engine.client.durability import LANES, lane_of
from producer_proxy.targets.base import (
    Asker,
    DelayedMessage,
    DelayedOutcome,
    MessageSlice,
    OnOutcomes,
    Outcome,
    SendTarget,
    Taken,
)
from producer_proxy.targets.engine_claims import EngineClaims
from producer_proxy.targets.engine_copies import count_copies, stored_copies
from producer_proxy.targets.engine_returned_ids import ReturnedIds
from producer_proxy.targets.engine_timers import EngineTimers
from producer_proxy.targets.engine_topics import EngineTopics


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
        self._returned = ReturnedIds(brokers)
        self._claims = EngineClaims(brokers, topics.renewed)

    @property
    def isolates_failures(self) -> bool:  # type: ignore[override]
        """True with several broker groups: each has a breaker."""
        return self._brokers.only is None

    @property
    def switch_s(self) -> float:  # type: ignore[override]
        return self._brokers.switch_s

    @property
    def has_taps(self) -> bool:  # type: ignore[override]
        """True of native lanes to a single broker group: between several, an append's messages may move."""
        return NATIVE and self._brokers.only is not None

    def resolve(
        self, definitions: Mapping[str, TopicDefinition], generation: int, asker: Asker
    ) -> dict[str, Destination]:
        return self._topics.resolve(definitions, generation, asker)

    def served_as(self, durability: int) -> int:
        return LANES[lane_of(durability)].durability

    def queue_of_id(self, destination: Destination, own_id: bytes) -> int | None:
        homes = destination.homes if destination.id_window_ms else None
        if homes is None:
            return None
        return queue_of_id(own_id, homes, self._brokers.id_homes, destination.first_queue)

    def admits(
        self, durability: int, destination: Destination, key: bytes | int | None, taken: int, asked: int
    ) -> bool:
        return self._lanes(durability).lets_in(destination, key, taken, asked)

    def submit(self, durability: int, messages: Sequence[MessageSlice], on_outcomes: OnOutcomes) -> Taken:
        if any(self._claims.concerns(each) for each in messages):
            self._claims.submit(self._lanes(durability), durability, messages, on_outcomes)
            return True
        return self._lanes(durability).submit(messages, on_outcomes)

    def ask(
        self, durability: int, message: MessageSlice, token_for: Callable[[int], bytes | None], on_outcomes: OnOutcomes
    ) -> None:
        if self._claims.concerns(message):
            self._claims.ask(self._lanes(durability), durability, message, token_for, on_outcomes)
        else:
            self._lanes(durability).ask(*message, token_for, on_outcomes)

    def add_delayed(
        self, durability: int, messages: Sequence[DelayedMessage], deadline_s: float
    ) -> list[DelayedOutcome]:
        return self._claims.add_delayed(
            durability, messages, deadline_s, lambda claimed: self._timers.add(durability, claimed, deadline_s)
        )

    def cancel(self, durability: int, topic: str, shown_id: str, deadline_s: float) -> tuple[int, str | None]:
        return self._timers.cancel(durability, topic, shown_id, deadline_s)

    def first_copies(
        self, messages: Sequence[MessageSlice], shown_ids: Sequence[str], deadline_s: float
    ) -> list[Outcome]:
        return self._returned.find(messages, shown_ids, deadline_s)

    def stored_copies(
        self, messages: Sequence[MessageSlice], shown_ids: Sequence[str], since_ms: int, deadline_s: float
    ) -> list[Outcome]:
        return stored_copies(self._brokers, messages, shown_ids, since_ms, deadline_s)

    def count_copies(
        self, messages: Sequence[MessageSlice], shown_ids: Sequence[str], since_ms: int, deadline_s: float
    ) -> list[int | None]:
        return count_copies(self._brokers, messages, shown_ids, since_ms, deadline_s)

    @property
    def up(self) -> bool:
        return all(lanes.up for lanes in self._brokers.lanes)

    @property
    def idle(self) -> bool:
        return self._brokers.idle and not self._claims.open

    def sent_mark(self) -> float:
        """The present, in monotonic seconds."""
        return time.monotonic()

    def is_sent(self, mark: float) -> bool:
        """Whether the engine has answered every message that was submitted up to then, or its link has broken."""
        return not self._claims.open and all(each.has_answered_before(mark) for each in self._brokers.listed)

    @property
    def queue_limits(self) -> list[QueueLimit]:
        return self._brokers.queue_limits

    def health(self) -> bool | str:
        return self._brokers.health()

    def close(self) -> None:
        self._brokers.close()

    def _lanes(self, durability: int) -> Lanes:
        return self._brokers.lanes[lane_of(durability)]
