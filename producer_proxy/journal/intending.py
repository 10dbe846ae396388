"""Intents of one proxy: written to its journal, or told as missed where the journal takes none."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from producer_proxy.journal.fates import Fate, fate_of
from producer_proxy.journal.journal import RepairJournal, WrittenBatch
from producer_proxy.journal.missed import ALL_QUEUES, MissedRanges
from producer_proxy.targets.base import MessageSlice, ToldOutcome
from producer_proxy.targets.dual import Copies

NO_JOURNAL = "this proxy has no repair journal: start it with --journal DIR"


class Intents:
    """
    Args:
        journal: None: this proxy has none, and secondaries are not written.
    """

    def __init__(self, journal: RepairJournal | None, now_ms: Callable[[], int]) -> None:
        self._journal, self._now_ms = journal, now_ms
        self.ranges = MissedRanges(None, now_ms) if journal is None else journal.missed

    @property
    def fault(self) -> str:
        """Why no intents are written; empty: they are."""
        return NO_JOURNAL if self._journal is None else self._journal.fault

    def intend(self, messages: Sequence[MessageSlice]) -> list[int] | None:
        return None if self._journal is None else self._journal.intend(messages)

    def keep(self, batch: Any) -> bool:
        """As RepairJournal.keep; without a journal nothing is taken."""
        return self._journal is not None and self._journal.keep(batch)

    def stored(self, stored: Sequence[tuple[int, int]]) -> None:
        """The primary has these intents: (intent, queue)."""
        if self._journal is not None:
            self._journal.note_stored(stored)

    def done(self, intents: Sequence[int]) -> None:
        """These intents need nothing more."""
        if self._journal is not None and intents:
            self._journal.note_done(intents)

    def all_done(self, batches: Iterable[WrittenBatch]) -> None:
        """All intents of these batches need nothing more."""
        if self._journal is not None:
            self._journal.note_all_done(batches)

    def all_stored(self, batch: WrittenBatch) -> None:
        """The primary has all messages of the batch."""
        if self._journal is not None:
            self._journal.note_all_stored(batch)

    def doubt(self, reason: str) -> None:
        """Record that messages of now may have no intent."""
        self.ranges.add_span(self._now_ms(), self._now_ms(), reason)

    def missed_batch(self, batch: Any) -> None:
        """As `missed`, of a TappedBatch, whose intents count for nothing from now on."""
        if self._journal is not None and batch.base is None:
            self._journal.drop(batch)
        for name, count, code, queue, first in batch.outcomes():
            is_stored = fate_of(code) is Fate.STORED
            if not is_stored and fate_of(code) is not Fate.UNKNOWN:
                continue
            for number in range(count):
                where, offset = (queue, first + number) if is_stored else (ALL_QUEUES, None)
                self.ranges.add(name, where, offset, 1, self.fault or "the journal failed")

    def missed(self, messages: Sequence[MessageSlice], outcomes: Sequence[ToldOutcome]) -> None:
        """Record messages without an intent that the primary has, or may have."""
        for message, outcome in zip(messages, outcomes, strict=True):
            fate = fate_of(outcome[0])
            if fate is Fate.STORED or fate is Fate.UNKNOWN:
                queue, offset = (outcome[1], outcome[2]) if fate is Fate.STORED else (None, None)
                name = message.destination.name
                self.ranges.add(
                    name, ALL_QUEUES if queue is None else queue, offset, 1, self.fault or "the journal failed"
                )


class MissedCopies(Copies):
    """Copies of a proxy without a journal: none is made, and all are recorded as missed, in memory."""

    def __init__(self, intents: Intents) -> None:
        self._intents = intents

    def intend(self, messages: Sequence[MessageSlice]) -> list[int] | None:
        return None

    def answered(
        self,
        intents: list[int] | None,
        messages: Sequence[MessageSlice],
        outcomes: Sequence[ToldOutcome],
        durability: int,
    ) -> None:
        self._intents.missed(messages, outcomes)

    def objection(self, topic: str) -> str | None:
        return None

    def held(self) -> set[str]:
        return set()

    @property
    def idle(self) -> bool:
        return True
