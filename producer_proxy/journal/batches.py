"""Batches of messages with the primary's outcomes, as a pair of targets gets them: as values, or as the journal's bytes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from producer_proxy.targets.base import MessageSlice, ToldOutcome

TappedBatch = Any
"""The class of `_tap`, which a machine without a compiler does not have. It has the attributes of an AnsweredBatch that all
batches need, and `unpacked()`."""


class AnsweredBatch(NamedTuple):
    """Messages with the primary's outcomes, in the order in which those came."""

    intents: list[int]
    messages: Sequence[MessageSlice]
    outcomes: Sequence[ToldOutcome]
    durability: int
    size: int

    @property
    def base(self) -> int:
        """Position of the first intent."""
        return self.intents[0]

    @property
    def names(self) -> set[str]:
        return {each.destination.name for each in self.messages}


class Copy(NamedTuple):
    """A message that is on its way to the secondary."""

    intent: int
    queue: int
    message: MessageSlice


def unpacked(batch: AnsweredBatch | TappedBatch) -> AnsweredBatch:
    if isinstance(batch, AnsweredBatch):
        return batch
    intents, messages, outcomes = batch.unpacked()
    return AnsweredBatch(intents, messages, outcomes, batch.durability, batch.size)


def copies_of(batches: Sequence[TappedBatch]) -> list[Copy]:
    """The copies of plain batches one by one."""
    return [
        Copy(intent, outcome[1], message)
        for batch in batches
        for intent, message, outcome in zip(*batch.unpacked(), strict=True)
    ]


def key_of(message: MessageSlice) -> Any:
    """The message's key as its entry in the journal has it."""
    return message.key if isinstance(message.key, bytes) else None
