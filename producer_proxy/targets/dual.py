"""Two targets as one: the primary, whose outcomes are the answer, and the secondary, which gets what the primary has.

See docs/dual-write.md. Nothing here waits for the secondary: copies go there after the answer, in the order of the
primary's outcomes, and the repair journal keeps what it lacks.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from common.config.definitions import TopicDefinition
from common.contract import Code
from common.limits import QueueLimit
from common.wire.calls import Message
from producer_proxy.targets.base import (
    Asker,
    MessageSlice,
    OnOutcomes,
    Outcome,
    ResolveError,
    SendTarget,
    Taken,
    ToldOutcome,
)


class DualDestination(NamedTuple):
    """A topic on two sides; `primary` is its destination at the primary. The secondary's is found as it is needed."""

    name: str
    queues: int
    durability: int
    grade: int
    id_window_ms: int
    primary: Any


class Copies(Protocol):
    """Brings what the primary has to the secondary. No method blocks."""

    def intend(self, messages: Sequence[MessageSlice]) -> list[int] | None:
        """Write down what is about to be sent to the primary: a number for each message; None: it cannot be now."""

    def answered(
        self,
        intents: list[int] | None,
        messages: Sequence[MessageSlice],
        outcomes: Sequence[ToldOutcome],
        durability: int,
    ) -> None:
        """Take the primary's outcomes of messages that `intend` got before."""

    def objection(self, topic: str) -> str | None:
        """Why the secondary cannot take this topic at all, as far as it is known; None: it can."""

    def held(self) -> set[str]:
        """Topics with messages that are on their way to the secondary, without those of the backlog; of a tap, also those that
        are on their way to the primary."""

    @property
    def idle(self) -> bool: ...


class DualTarget(SendTarget):
    """The target. Delayed messages, cancellation and requests are refused: their secondary could not follow.

    Args:
        primary, secondary: owned by others.
        tap: a DualTap, which makes intents and copies of all messages of the primary's destinations that have it. None: they
            are made here, message by message.
    """

    def __init__(self, primary: SendTarget, secondary: SendTarget, copies: Copies, tap: Any = None) -> None:
        self._primary, self.secondary, self._copies, self._tap = primary, secondary, copies, tap
        self.name = f"{primary.name} and {secondary.name}"
        self._open: dict[int, Sequence[MessageSlice]] = {}
        self._numbers = itertools.count()

    @property
    def primary(self) -> SendTarget:
        return self._primary

    @property
    def isolates_failures(self) -> bool:  # type: ignore[override]
        return self._primary.isolates_failures

    @property
    def switch_s(self) -> float:  # type: ignore[override]
        return self._primary.switch_s

    @property
    def settled_after_s(self) -> float:  # type: ignore[override]
        return self._primary.settled_after_s

    def resolve(
        self, definitions: Mapping[str, TopicDefinition], generation: int, asker: Asker
    ) -> dict[str, DualDestination]:
        """Asks the primary. The secondary is asked by its own greenlet, so that a first message does not wait for it."""
        for name in definitions:
            if unfit := self._copies.objection(name):
                raise ResolveError(Code.UNAVAILABLE, unfit)
        found = self._primary.resolve(definitions, generation, asker)
        if self._tap is not None:
            for each in found.values():
                each.tap = self._tap  # from now on the hot path may take its messages
        return {
            name: DualDestination(
                name, each.queues, each.durability, each.grade, getattr(each, "id_window_ms", 0), each
            )
            for name, each in found.items()
        }

    def served_as(self, durability: int) -> int:
        return self._primary.served_as(durability)

    def queue_of_id(self, destination: DualDestination, own_id: bytes) -> int | None:
        return self._primary.queue_of_id(destination.primary, own_id)

    def objection(self, message: Message, durability: int) -> str | None:
        """The secondary is asked about the message alone: the durability is that of the primary."""
        return self._primary.objection(message, durability) or self.secondary.objection(message, 0)

    def admits(
        self, durability: int, destination: DualDestination, key: bytes | int | None, taken: int, asked: int
    ) -> bool:
        return self._primary.admits(durability, destination.primary, key, taken, asked)

    def submit(self, durability: int, messages: Sequence[MessageSlice], on_outcomes: OnOutcomes) -> Taken:
        if self._tap is not None:
            return self._primary.submit(durability, _tapped(messages, self._tap), on_outcomes)
        intents = self._copies.intend(messages)
        number = next(self._numbers)
        self._open[number] = messages

        def on_primary(outcomes: Sequence[ToldOutcome]) -> None:
            try:
                on_outcomes(outcomes)
            finally:
                self._copies.answered(intents, messages, outcomes, durability)
                del self._open[number]

        return bool(self._primary.submit(durability, _at_primary(messages), on_primary))  # its outcomes are needed

    def first_copies(
        self, messages: Sequence[MessageSlice], shown_ids: Sequence[str], deadline_s: float
    ) -> list[Outcome]:
        return self._primary.first_copies(_at_primary(messages), shown_ids, deadline_s)

    def held(self) -> set[str]:
        """Topics with messages without an outcome, or on their way to the secondary; the backlog's are not among them."""
        return self._copies.held() | {each.destination.name for batch in self._open.values() for each in batch}

    @property
    def up(self) -> bool:
        return self._primary.up

    @property
    def idle(self) -> bool:
        return not self._open and self._copies.idle

    @property
    def queue_limits(self) -> list[QueueLimit]:
        return self._primary.queue_limits

    def close(self) -> None:
        """Does nothing: both sides and the journal are their owners'."""


def _at_primary(messages: Sequence[MessageSlice]) -> list[MessageSlice]:
    make: Callable[[tuple], MessageSlice] = MessageSlice._make
    return [
        make((destination.primary, key, assigned_id, encoded)) for destination, key, assigned_id, encoded in messages
    ]


def _tapped(messages: Sequence[MessageSlice], tap: Any) -> list[MessageSlice]:
    """As _at_primary, with this tap: a destination may have lost it by a change of the configuration since it was found."""
    return [
        MessageSlice(destination.primary.with_tap(tap), key, assigned_id, encoded)
        for destination, key, assigned_id, encoded in messages
    ]
