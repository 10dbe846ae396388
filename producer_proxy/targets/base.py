"""The interface of a target: a system that keeps the messages of topics. Siblings: engine, kafka, memory.

A target gets values and encodes them last. The hot path uses the engine's lanes directly, not this interface. Messages
of topics with another target take the rare path.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from common.config.definitions import TopicDefinition
from common.contract import Code
from common.limits import QueueLimit
from common.wire.calls import Message


class ResolveError(Exception):
    """The target could not be asked about a topic. Retriable; `code` is the contract's."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Asker(NamedTuple):
    """The caller of a question for destinations.

    Attributes:
        application: topics that the target creates count for it; empty: it is not known, as for buffered messages.
        timeout_s: how long it waits for the target.
    """

    application: str = ""
    timeout_s: float = 3.0


NOBODY = Asker()


class MessageSlice(NamedTuple):
    """One message for a target.

    Attributes:
        destination: of its topic, from this target's `resolve()`. It has the attributes name, queues, durability and
            grade.
        key: the bytes that bind the message to one queue, or that queue's number; None: any of the topic's queues.
        assigned_id: 16 bytes; None: the message carries its own id.
        encoded: the Message in Thrift binary, as it came.
    """

    destination: Any
    key: bytes | int | None
    assigned_id: bytes | None
    encoded: bytes


Outcome = tuple[int, int | None, int | None]
"""(contract code, queue, offset) of one message.

Queue and offset only with OK and DUPLICATE; None where the first copy is a delayed message that is pending.
"""
ToldOutcome = Outcome | tuple[int, int | None, int | None, str]
"""An outcome, and the sentence of a refusal where that of the code is not enough. The offset of an OK is None where the
target has none that consumers would see."""
OnOutcomes = Callable[[Sequence[ToldOutcome]], object]


class Withdrawable(Protocol):
    """Messages that were taken."""

    def withdraw(self) -> Sequence[Outcome | None]:
        """End the wait for them. Those that were not sent will not be; `on_outcomes` is not called any more.

        Returns the outcomes so far; None: the message may be stored, now or later, or it may not.
        """


Taken = bool | Withdrawable
AllStored = Callable[[bytes, int], bool]
STORED: Outcome = (int(Code.OK), None, None)
"""An outcome of messages whose queue their sender knows."""
UNCOUNTABLE = -1
"""Instead of a number of copies: the target cannot tell it, and could not a moment later."""


class Repetition(NamedTuple):
    """Rounds of a delayed message after the first: the first gap, their number, the growth of the gap, the last due
    time. 0: none.
    """

    gap_ms: int
    times: int
    growth: int
    until_ms: int


class DelayedMessage(NamedTuple):
    """One delayed message.

    Attributes:
        id_start, id_size: position of its own id within `encoded`; unused with an assigned id.
        due_ms: Unix ms before which the message may not be delivered; void with `delay_ms`.
        delay_ms: from the receipt at the target, by its clock; None: `due_ms` counts.
    """

    message: MessageSlice
    id_start: int
    id_size: int
    due_ms: int
    delay_ms: int | None
    repetition: Repetition


DelayedOutcome = tuple[int, int | None, int | None]
"""(contract code, queue, offset) of one delayed message; None where it is not known yet."""


class SendTarget(ABC):
    """A target.

    Attributes:
        name: for sentences and health.
        features: the supported ones of "delay", "cancel" and "reply". The send path refuses the others by name.
        switch_s: time within which another server takes over what was sent to one that hangs; 0: none does.
        isolates_failures: the target isolates its failed parts, so one timeout does not make the whole target
            suspected.
        settled_after_s: age from which on a message without an outcome is stored, or never will be.
        has_taps: its destinations take a tap, which gets to know their messages without one object per message.
        takes_encoded: it has `submit_encoded`.
    """

    name: str
    features: frozenset[str] = frozenset()
    isolates_failures = False
    switch_s = 0.0
    settled_after_s = 10.0
    has_taps = False
    takes_encoded = False

    @property
    def primary(self) -> "SendTarget":
        """The target whose outcomes are this one's answers: itself, unless it writes to two."""
        return self

    @abstractmethod
    def resolve(self, definitions: Mapping[str, TopicDefinition], generation: int, asker: Asker) -> dict[str, Any]:
        """Destinations of these topics by name. May block the greenlet, for as long as the asker waits.

        Args:
            generation: of the configuration that the definitions are from.
        Raises:
            ResolveError: the target did not answer, or the application may create no more topics.
        """

    @abstractmethod
    def served_as(self, durability: int) -> int:
        """The number of the durability class that a class is served as.

        Messages of the same class are submitted together.
        """

    def queue_of_id(self, destination: Any, own_id: bytes) -> int | None:
        """The queue that a client's id selects for a message without a key; None: any queue."""
        return None

    def objection(self, message: Message, durability: int) -> str | None:
        """A sentence naming the field that this target cannot serve; None: it takes the message.

        Args:
            durability: as the call asks for it; 0: the topic's own.
        """
        return None

    @abstractmethod
    def admits(self, durability: int, destination: Any, key: bytes | int | None, taken: int, asked: int) -> bool:
        """Whether `asked` messages may join what waits, after `taken` others of their call.

        True when no part of the target could take them now.
        """

    @abstractmethod
    def submit(self, durability: int, messages: Sequence[MessageSlice], on_outcomes: OnOutcomes) -> Taken:
        """Store messages of one class, in order. Does not block; their bytes are copied.

        `on_outcomes` is called once, in a loop callback or before this returns. Returns whether any message was taken;
        if it can be told more, an object with which they can be withdrawn.
        """

    def submit_encoded(
        self, encode: Callable[[str, int], bytes], count: int, size: int, all_stored: AllStored, on_outcomes: OnOutcomes
    ) -> None:
        """As `submit` of messages that are encoded already, each bound to a queue. For a target that `takes_encoded`.

        Args:
            encode: makes the request's payload, given the cluster's name and the patience in ms.
            count, size: number and bytes of the messages.
            all_stored: whether an answer says OK to each of `count` messages: then all outcomes are STORED.
        """
        raise NotImplementedError(f"target {self.name}: encoded messages")

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
        """Store delayed messages. Blocks the greenlet until the deadline, in monotonic seconds. Feature "delay"."""
        raise NotImplementedError(f"target {self.name}: delay")

    def cancel(self, durability: int, topic: str, shown_id: str, deadline_s: float) -> tuple[int, str | None]:
        """Withdraw a delayed message: (contract code, sentence of a refusal).

        Blocks as `add_delayed`. Feature "cancel".
        """
        raise NotImplementedError(f"target {self.name}: cancel")

    def first_copies(
        self, messages: Sequence[MessageSlice], shown_ids: Sequence[str], deadline_s: float
    ) -> list[Outcome]:
        """Look for stored copies of messages that come back with an id that a proxy assigned. Blocks the greenlet.

        Returns: DUPLICATE with the place of the copy; OK: there is none; another code: it is not known.
        """
        return [(int(Code.OK), 0, -1)] * len(messages)

    def stored_copies(
        self, messages: Sequence[MessageSlice], shown_ids: Sequence[str], since_ms: int, deadline_s: float
    ) -> list[Outcome]:
        """Look for messages that may have been stored since a time, by their ids. Blocks the greenlet.

        Returns: DUPLICATE with the place of the copy; OK: there is none; INVALID: the target cannot be asked; another
            code: it is not known now.
        """
        return [(int(Code.INVALID), None, None)] * len(messages)

    def count_copies(
        self, messages: Sequence[MessageSlice], shown_ids: Sequence[str], since_ms: int, deadline_s: float
    ) -> list[int | None]:
        """As `stored_copies`: how many copies of each there are, which costs more.

        None: it is not known now. UNCOUNTABLE: the target cannot tell it.
        """
        return [UNCOUNTABLE] * len(messages)

    @property
    def up(self) -> bool:
        """Whether the target takes messages of every class now."""
        return True

    @property
    def idle(self) -> bool:
        """Whether every accepted message has its outcome."""
        return True

    @property
    def queue_limits(self) -> list[QueueLimit]:
        """Bounds of the messages that wait for the target, for the admission settings."""
        return []

    def health(self) -> bool | str:
        """For /readyz: True, or a sentence."""
        return True

    @abstractmethod
    def close(self) -> None:
        """Release links and files. Open messages get their outcome."""
