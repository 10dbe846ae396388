"""The interface of a target: a system that keeps the messages of topics. Siblings: engine, memory.

A target is given values and encodes them last. The hot path knows the engine's lanes by name and passes this interface
by; messages of topics with another target take the rare path.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from common.config.definitions import TopicDefinition
from common.limits import QueueLimit


class ResolveError(Exception):
    """The target could not be asked about a topic. Retriable; `code` is the contract's."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class MessageSlice(NamedTuple):
    """One message for a target.

    Attributes:
        destination: of its topic, from this target's `resolve()`. It has the attributes name, queues, durability and
            grade.
        key: what ties the message to one queue; None: any of the topic's queues will do.
        assigned_id: 16 bytes; None: the message carries an id of its own.
        encoded: the Message in Thrift binary, as it came.
    """

    destination: Any
    key: bytes | None
    assigned_id: bytes | None
    encoded: bytes


Outcome = tuple[int, int, int]
"""(contract code, queue, offset) of one message; queue and offset only with OK and DUPLICATE."""
OnOutcomes = Callable[[list[Outcome]], object]


class Repetition(NamedTuple):
    """Rounds of a delayed message after the first: the first gap, their number, the growth of the gap, the last due
    time. 0: none.
    """

    gap_ms: int
    times: int
    growth: int
    until_ms: int


class DelayedMessage(NamedTuple):
    """One message for later.

    Attributes:
        id_start, id_size: of its own id within `encoded`; unused with an assigned one.
        due_ms: Unix ms, before which it may not be delivered.
    """

    message: MessageSlice
    id_start: int
    id_size: int
    due_ms: int
    repetition: Repetition


DelayedOutcome = tuple[int, int | None, int | None]
"""(contract code, queue, offset) of one delayed message; None where it is not known yet."""


class SendTarget(ABC):
    """
    Attributes:
        name: for sentences and health.
        features: of "delay", "cancel" and "reply", those that it supports. The send path refuses the others by name.
        isolates_failures: parts that fail are isolated by the target itself, so one timeout does not make all of it
            suspect.
    """

    name: str
    features: frozenset[str] = frozenset()
    isolates_failures = False

    @abstractmethod
    def resolve(self, definitions: Mapping[str, TopicDefinition], generation: int) -> dict[str, Any]:
        """Destinations of these topics by name. May block the greenlet.

        Args:
            generation: of the configuration that the definitions are from.
        Raises:
            ResolveError: the target did not answer.
        """

    @abstractmethod
    def served_as(self, durability: int) -> int:
        """The number of the durability class that a class is served as.

        Messages of one such class are submitted together.
        """

    def binds_ids(self, destination: Any) -> bool:
        """Whether an id that a client has set leads to a queue, as a key does."""
        return False

    @abstractmethod
    def admits(self, durability: int, destination: Any, key: bytes | None, taken: int, asked: int) -> bool:
        """Whether `asked` messages may join what waits, after `taken` others of their call.

        True where nothing could take them now.
        """

    @abstractmethod
    def submit(self, durability: int, messages: Sequence[MessageSlice], on_outcomes: OnOutcomes) -> bool:
        """Store messages of one class, in order. Does not block; their bytes are copied.

        `on_outcomes` is called once, in a loop callback or before this returns. Returns whether any message was taken.
        """

    def ask(
        self, durability: int, message: MessageSlice, token_for: Callable[[int], bytes | None], on_outcomes: OnOutcomes
    ) -> None:
        """As `submit` of one request; `token_for(group)` gives its trailer, or None when too many wait. Feature
        "reply".
        """
        raise NotImplementedError(f"target {self.name}: reply")

    def add_delayed(
        self, durability: int, messages: Sequence[DelayedMessage], deadline_s: float
    ) -> list[DelayedOutcome]:
        """Store messages for later. Blocks the greenlet until the deadline, in monotonic seconds. Feature "delay"."""
        raise NotImplementedError(f"target {self.name}: delay")

    def cancel(self, durability: int, topic: str, shown_id: str, deadline_s: float) -> tuple[int, str | None]:
        """Withdraw a delayed message: (contract code, sentence of a refusal).

        Blocks as `add_delayed`. Feature "cancel".
        """
        raise NotImplementedError(f"target {self.name}: cancel")

    @property
    def up(self) -> bool:
        """Whether it takes messages of every class now."""
        return True

    @property
    def idle(self) -> bool:
        """Whether every message taken has its outcome."""
        return True

    @property
    def queue_limits(self) -> list[QueueLimit]:
        """Bounds of what waits for it, for the admission settings."""
        return []

    def health(self) -> bool | str:
        """For /readyz: True, or a sentence."""
        return True

    @abstractmethod
    def close(self) -> None:
        """Release links and files. What has no outcome yet gets one."""
