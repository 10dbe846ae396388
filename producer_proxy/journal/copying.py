"""Copies of one pair of targets: what the primary has is written to the secondary, by one greenlet and one batch at a time.

One batch at a time keeps the primary's order per key at the secondary. A key of which the secondary lacks a message is
diverted: its later messages stay in the journal until that one is repaired.
"""

import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import gevent
from gevent.event import AsyncResult, Event

from common.contract import Code
from common.limited_log import LimitedLog
from common.readiness import Note
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.journal.backlog import RepairBacklog, WaitingRepair
from producer_proxy.journal.batches import AnsweredBatch, Copy, TappedBatch, copies_of, key_of, unpacked
from producer_proxy.journal.fates import Fate, fate_of
from producer_proxy.journal.intending import Intents
from producer_proxy.journal.native import all_stored, encode_produce_of
from producer_proxy.journal.repair import Repairer
from producer_proxy.journal.sides import Sides, takes
from producer_proxy.journal.unanswered import UnansweredBatches
from producer_proxy.targets.base import STORED, MessageSlice, ResolveError, ToldOutcome
from producer_proxy.targets.dual import Copies

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.journal"))

WAITING_BYTES_MAX = 8 << 20
"""Bytes that wait in memory for the secondary; what comes above it stays in the journal."""
BATCH_MESSAGES_MAX, BATCH_BYTES_MAX = 2_000, 4 << 20
GATHER_S = 0.2
"""Time in which appends of the tap gather for one request to the secondary, unless enough of them wait sooner. More costs
less CPU; the secondary is later."""
GATHER_BYTES = 1 << 20
ANSWER_S = 0.02
"""Time for which such a request waits for the appends that the primary has not answered yet. The others' copies go next time."""
REST_SHARE = 3
"""Time that the proxy's calls get after each batch that is left to the repair, per time that this took. A secondary that
hangs leaves hundreds of batches behind at once."""
IDLE_S = 1.0
STOP_S = 1.0
OK = int(Code.OK)
ALL_OK = {OK}
THERE = {OK, int(Code.DUPLICATE)}


class SecondaryCopies(Copies):
    """
    Args:
        sides: both targets, and the topics' definitions.
        backlog: of the proxy's journal, for all pairs.
        repairer: of this pair.
    Attributes:
        unanswered: batches of the pair's tap, if there is one.
        copied: messages that the secondary has answered OK or DUPLICATE.
    """

    def __init__(self, sides: Sides, intents: Intents, backlog: RepairBacklog, repairer: Repairer) -> None:
        self.sides, self._intents, self._backlog, self.repairer = sides, intents, backlog, repairer
        self._waiting: deque[AnsweredBatch | TappedBatch] = deque()
        self._copying: list[Copy] = []
        self._copying_tapped: list[TappedBatch] = []
        self.waiting_bytes = self.copied = 0
        self._wake, self._is_enough = Event(), Event()
        self.unanswered = UnansweredBatches(sides.secondary.name, intents, self._wake.set, self._take)
        self._is_stopping, self._is_busy = False, False
        self._greenlet = gevent.spawn(self._run)

    def intend(self, messages: Sequence[MessageSlice]) -> list[int] | None:
        return self._intents.intend(messages)

    def objection(self, topic: str) -> str | None:
        return self.sides.unequal.get(topic)

    @property
    def idle(self) -> bool:
        return not self._waiting and not self.unanswered and not self._is_busy

    def held(self) -> set[str]:
        waiting = {name for batch in (*self._waiting, *self._copying_tapped) for name in batch.names}
        return self.unanswered.names | waiting | {each.message.destination.name for each in self._copying}

    def health(self) -> bool | str:
        """For /readyz: a note when the secondary lacks messages."""
        if found := next(iter(self.sides.unequal.values()), self.repairer.last_error):
            return Note(found)
        return True

    def answered(
        self,
        intents: list[int] | None,
        messages: Sequence[MessageSlice],
        outcomes: Sequence[ToldOutcome],
        durability: int,
    ) -> None:
        if intents is None:
            return self._intents.missed(messages, outcomes)
        return self._take(
            AnsweredBatch(intents, messages, outcomes, durability, sum([len(each[3]) for each in messages]))
        )

    def _take(self, batch: AnsweredBatch | TappedBatch) -> None:
        if self.waiting_bytes and self.waiting_bytes + batch.size > WAITING_BYTES_MAX:
            self._divert_all(batch)
        else:
            self._waiting.append(batch)
            self.waiting_bytes += batch.size
            if self.waiting_bytes >= GATHER_BYTES:
                self._is_enough.set()
        self._wake.set()

    def stop(self) -> None:
        """Copy what waits, for a second at most. What is left stays in the journal."""
        self._is_stopping = True
        self.unanswered.cut()
        self._is_enough.set()
        self._wake.set()
        self._greenlet.join(STOP_S)
        self._greenlet.kill()
        while self._waiting:
            self._divert_all(self._waiting.popleft())

    def _run(self) -> None:
        pause_s = 0.0
        while not self._is_stopping or self._waiting:
            self._wake.wait(pause_s if self._backlog.count else None)
            self._is_busy = True
            if self.unanswered and self.waiting_bytes < GATHER_BYTES and not self._is_stopping:
                self._is_enough.clear()
                self._is_enough.wait(GATHER_S)
            self._wake.clear()
            try:
                self.unanswered.cut(ANSWER_S)
                for _ in range(len(self._waiting)):  # what comes meanwhile must not keep the repair waiting
                    if self._waiting:
                        gevent.sleep(REST_SHARE * self._copy())
                first = min((each.base for each in self._waiting if each.base is not None), default=None)
                pause_s = IDLE_S if self._is_stopping else self.repairer.step(first)
            except Exception:
                limited.exception("secondary=%s: internal error", self.sides.secondary.name)
                pause_s = IDLE_S
            finally:
                self._is_busy = False
            if self._waiting:
                self._wake.set()

    def _copy(self) -> float:
        """Give the next batches to the secondary, and wait for its answer; or leave the next one to the repair at once.

        Returns the seconds of work for which nothing has waited; 0: it has waited for the answer.
        """
        began = time.monotonic()
        if self._divert_held():
            return time.monotonic() - began
        if self._is_plain(self._waiting[0]):
            self._copy_tapped(self._next_tapped())
        else:
            self._copy_each()
        return 0.0

    def _copy_each(self) -> None:
        """As _copy, of batches that are looked at message by message."""
        copies, durability = self._next_copies()
        self._copying = copies
        secondary, is_sent = self.sides.secondary, False
        try:
            queues = {each.message.destination.name: each.message.destination.queues for each in copies}
            destinations = self.sides.at_secondary(queues)
            fits = [takes(destinations.get(each.message.destination.name), each.queue) for each in copies]
            if not all(fits):
                self._divert([each for each, is_fit in zip(copies, fits, strict=True) if not is_fit], False)
                copies = [each for each, is_fit in zip(copies, fits, strict=True) if is_fit]
            if not copies:
                return
            slices = [
                MessageSlice(destinations[destination.name], queue, assigned_id, encoded)
                for _, queue, (destination, _, assigned_id, encoded) in copies
            ]
            answer: AsyncResult = AsyncResult()
            is_sent = True
            secondary.submit(secondary.served_as(durability), slices, answer.set)
            outcomes: Sequence[ToldOutcome] = answer.get()
        except ResolveError as error:
            self.repairer.note(str(error))
            self._divert(copies, is_asked_for=False)
        except BaseException:  # this greenlet is killed, or an internal error
            self._divert(copies, is_asked_for=is_sent)
            raise
        else:
            self._settle(copies, outcomes)
        finally:
            self._copying = []

    def _is_plain(self, batch: AnsweredBatch | TappedBatch) -> bool:
        """Whether the batch goes to the secondary as it is."""
        if isinstance(batch, AnsweredBatch) or not batch.is_all_ok:
            return False
        return not self._backlog.count or not any(
            self._backlog.ordering_keys.share_held(topic, counts.keys()) for topic, counts in batch.counts_of_keys()
        )

    def _divert_held(self) -> bool:
        """Leave the next batch to the repair, if that can be said of the whole of it: its keys wait, or the secondary is away."""
        batch, keys = self._waiting[0], self._backlog.ordering_keys
        if isinstance(batch, AnsweredBatch) or not batch.is_all_ok or not self._backlog.count:
            return False
        if self.sides.secondary.up and not all(
            keys.share_held(topic, counts.keys()) == len(counts) for topic, counts in batch.counts_of_keys()
        ):
            return False
        self._waiting.popleft()
        self.waiting_bytes -= batch.size
        self._divert_tapped((batch,), is_asked_for=False)
        return True

    def _next_tapped(self) -> list[TappedBatch]:
        batches: list[TappedBatch] = []
        size = count = 0
        while self._waiting and self._is_plain(self._waiting[0]):
            if batches and (size + self._waiting[0].size > BATCH_BYTES_MAX or count >= BATCH_MESSAGES_MAX):
                break
            batch: TappedBatch = self._waiting.popleft()
            size, count = size + batch.size, count + batch.count
            batches.append(batch)
        self.waiting_bytes -= size
        return batches

    def _copy_tapped(self, batches: list[TappedBatch]) -> None:
        """As _copy, of plain batches: their bytes go to the secondary without an object per message."""
        self._copying_tapped = batches
        secondary, is_sent = self.sides.secondary, False
        count, size = sum([each.count for each in batches]), sum([each.size for each in batches])
        answer: AsyncResult = AsyncResult()
        try:
            queues = {topic.name: topic.queues for batch in batches for topic in batch.topics}
            if not self.sides.fit(queues):
                self._divert_tapped(batches, is_asked_for=False)  # a moment later the others are repaired
                return
            is_sent = True
            secondary.submit_encoded(partial(encode_produce_of, batches), count, size, all_stored, answer.set)
            outcomes: Sequence[ToldOutcome] = answer.get()
        except ResolveError as error:
            self.repairer.note(str(error))
            self._divert_tapped(batches, is_asked_for=False)
        except BaseException:  # this greenlet is killed, or an internal error
            self._divert_tapped(batches, is_asked_for=is_sent)
            raise
        else:
            self._settle_tapped(batches, outcomes)
        finally:
            self._copying_tapped = []

    def _settle_tapped(self, batches: list[TappedBatch], outcomes: Sequence[ToldOutcome]) -> None:
        """As _settle; batches with the same fate for every message without an object per message."""
        if outcomes.count(STORED) == len(outcomes):
            self.copied += len(outcomes)
            return self._intents.all_done(batches)
        fates = {fate_of(code) for code in {each[0] for each in outcomes}}
        if fates not in ({Fate.AWAY}, {Fate.UNKNOWN}):
            return self._settle_each(batches, outcomes)
        is_unknown = fates == {Fate.UNKNOWN}
        self.repairer.note_refusal(batches[0].topics[0].name, outcomes[0])
        kept = self._kept(batches)
        if is_unknown:
            for batch in kept:
                self.repairer.all_attempted(batch.positions())
        return self._divert_tapped(kept, is_asked_for=is_unknown)

    def _settle_each(self, batches: Iterable[TappedBatch], outcomes: Sequence[ToldOutcome]) -> None:
        at = 0
        for batch in batches:
            told = outcomes[at : at + batch.count]
            at += batch.count
            self._settle(copies_of(self._kept((batch,))), told if batch.base is not None else ())

    def _kept(self, batches: Iterable[AnsweredBatch | TappedBatch]) -> list[Any]:
        """The batches whose intents are in segments, so that they can wait; the others are recorded as missed."""
        found = []
        for batch in batches:
            if isinstance(batch, AnsweredBatch) or self._intents.keep(batch):
                found.append(batch)
            else:
                self._intents.missed_batch(batch)
        return found

    def _settle(self, copies: list[Copy], outcomes: Sequence[ToldOutcome]) -> None:
        if {each[0] for each in outcomes} <= THERE:
            self.copied += len(copies)
            return self._intents.done([each.intent for each in copies])
        done: list[int] = []
        for copy, outcome in zip(copies, outcomes, strict=True):
            fate = fate_of(outcome[0])
            if fate is Fate.STORED:
                done.append(copy.intent)
                continue
            self.repairer.note_refusal(copy.message.destination.name, outcome)
            self._divert((copy,), is_asked_for=fate is Fate.UNKNOWN)
            if fate is Fate.UNKNOWN:
                self.repairer.attempted(copy.intent)
        self.copied += len(done)
        return self._intents.done(done)

    def _next_copies(self) -> tuple[list[Copy], int]:
        """Messages of one class for the secondary, out of the next batches; the others get what they need at once."""
        copies: list[Copy] = []
        size, durability = 0, self._waiting[0].durability
        while self._waiting and self._waiting[0].durability == durability:
            if copies and (size + self._waiting[0].size > BATCH_BYTES_MAX or len(copies) >= BATCH_MESSAGES_MAX):
                break
            batch = self._waiting.popleft()
            self.waiting_bytes -= batch.size
            size += batch.size
            for kept in self._kept((batch,)):
                copies += self._wanted(unpacked(kept))
        return copies, durability

    def _wanted(self, batch: AnsweredBatch) -> list[Copy]:
        """The messages that the primary has and that may go to the secondary now."""
        if not self._backlog.count and {each[0] for each in batch.outcomes} <= ALL_OK:
            return [
                Copy(intent, outcome[1] or 0, message)
                for intent, message, outcome in zip(batch.intents, batch.messages, batch.outcomes, strict=True)
            ]
        found: list[Copy] = []
        for intent, message, outcome in zip(batch.intents, batch.messages, batch.outcomes, strict=True):
            if self._stays(intent, message, outcome):
                continue
            copy = Copy(intent, outcome[1] or 0, message)
            if self._backlog.holds(message.destination.name, key_of(message)):
                self._divert((copy,), is_asked_for=False)
            else:
                found.append(copy)
        return found

    def _stays(self, intent: int, message: MessageSlice, outcome: ToldOutcome) -> bool:
        """Deal with a message that does not go to the secondary as it is."""
        fate = fate_of(outcome[0])
        if fate is Fate.STORED and outcome[1] is not None:
            if outcome[0] == OK or self.sides.secondary_finds_duplicates(message.destination.name):
                return False
            # Its first copy may be at the secondary already, which would store it twice.
            self._divert((Copy(intent, outcome[1], message),), is_asked_for=True)
        elif fate is Fate.UNKNOWN:
            self._enter(message, WaitingRepair(intent, None, False))
        else:  # not stored; or the first copy is a delayed message that is pending, and no message of the log yet
            self._intents.done((intent,))
        return True

    def _divert_all(self, given: AnsweredBatch | TappedBatch) -> None:
        if not isinstance(given, AnsweredBatch) and given.is_all_ok:
            return self._divert_tapped((given,), is_asked_for=False)
        for batch in map(unpacked, self._kept((given,))):
            for intent, message, outcome in zip(batch.intents, batch.messages, batch.outcomes, strict=True):
                if not self._stays(intent, message, outcome):
                    self._divert((Copy(intent, outcome[1] or 0, message),), is_asked_for=False)
        return None

    def _divert_tapped(self, batches: Iterable[TappedBatch], is_asked_for: bool) -> None:
        """As _divert, of batches that are all OK."""
        for batch in self._kept(batches):
            self._backlog.divert_batch(batch.repairs(is_asked_for))
            self._intents.all_stored(batch)

    def _divert(self, copies: Iterable[Copy], is_asked_for: bool) -> None:
        """Leave messages that the primary has to the repair."""
        for intent, queue, message in copies:
            self._enter(message, WaitingRepair(intent, queue, is_asked_for))
            self._intents.stored(((intent, queue),))

    def _enter(self, message: MessageSlice, repair: WaitingRepair) -> None:
        entry = BufferEntry(message.destination.name, key_of(message), None, b"", 0)
        self._backlog.divert(entry, repair)
