"""Repair of one pair of targets: brings the entries of the backlog to the secondary, one batch at a time.

Steps per entry: where it is not known whether the primary has it, the primary is asked by id; where the secondary may have
it, the secondary is asked; then it is written there, bound to the primary's queue and under the same id. Where both have the
id of an entry that was not known, and may have it from another intent, it is counted on both sides: see repeated.py.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from gevent.event import AsyncResult

from common.contract import Code
from common.limited_log import LimitedLog
from engine.client.durability import FSYNC
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.pace import PER_S, Pace
from producer_proxy.journal.absence import Absence
from producer_proxy.journal.backlog import RepairBacklog, WaitingRepair
from producer_proxy.journal.fates import Fate, fate_of
from producer_proxy.journal.journal import RepairJournal
from producer_proxy.journal.repeated import RepeatedIds
from producer_proxy.journal.sides import Sides, takes
from producer_proxy.journal.taken import TakenEntry
from producer_proxy.targets.base import MessageSlice, Outcome, ResolveError, SendTarget, ToldOutcome

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.journal"))

Answer = TypeVar("Answer")

PAUSE_S_MIN, PAUSE_S_MAX = 0.02, 0.5
IDLE_S = 0.1
ASK_S = 35.0
"""A little more than the Kafka bridge searches for."""
ASK_AGAIN_S = 1.0
MARGIN_MS = 10_000
"""Difference of the clocks of proxy and primary that a search allows for."""


class Repairer:
    """
    Args:
        began: position of this process' first intent: what lies before it, an earlier process may have copied.
        per_s: entries per second, at most; fewer while the loop is busy.
    Attributes:
        repaired: entries written to the secondary, or found there. dropped: that the primary does not have.
        refused: that the secondary will never take: they are on the dead-letter list.
        unverified: written though the primary could not be asked.
        last_error: why entries wait; None: they do not.
    """

    def __init__(
        self,
        sides: Sides,
        journal: RepairJournal,
        backlog: RepairBacklog,
        now_ms: Callable[[], int],
        per_s: int = PER_S,
    ) -> None:
        self._sides, self._journal, self._backlog, self._now_ms = sides, journal, backlog, now_ms
        self._began, self._began_at = journal.began, time.monotonic()
        self._attempts: dict[int, float] = {}
        self._absence = Absence(sides.primary, now_ms)
        self._repeated = RepeatedIds()
        self._held: dict[str, tuple[float, float]] = {}
        self._due = 0.0
        self.pace = Pace(per_s)
        self.repaired = self.dropped = self.refused = self.unverified = 0
        self.last_error: str | None = None

    def attempted(self, position: int) -> None:
        """Note that the secondary got an entry and did not say whether it has it."""
        self._attempts[position] = time.monotonic()

    def all_attempted(self, positions: Iterable[int]) -> None:
        """As `attempted`, of many entries."""
        self._attempts.update(dict.fromkeys(positions, time.monotonic()))

    def note(self, sentence: str) -> None:
        """Tell why entries wait."""
        if self.last_error != sentence:
            limited.warning(
                "secondary=%s: messages wait in the repair journal: %s", self._sides.secondary.name, sentence
            )
        self.last_error = sentence

    def note_refusal(self, topic: str, outcome: ToldOutcome) -> None:
        """Tell that the secondary did not take a message."""
        more = f": {outcome[3]}" if len(outcome) > 3 and outcome[3] else ""
        self.note(f"topic={topic}: {self._sides.secondary.name} answered {int(outcome[0])}{more}")

    def step(self, before: int | None) -> float:
        """Repair one batch; returns the pause before the next. Blocks until the secondary has answered.

        Args:
            before: entries from this position on wait for messages that are on their way; None: there are none.
        """
        started = time.monotonic()
        if not self._backlog.count:
            self.last_error = None
            return 0.0
        if started < self._due:
            return self._due - started
        if not self._sides.secondary.up:
            self.note(f"{self._sides.secondary.name} cannot be reached")
            return self._wait(PAUSE_S_MAX)
        taken = self._backlog.take(self._is_due, self.pace.batch, before)
        if not taken:
            return self._wait(IDLE_S)
        left = {repair.position for _, repair in taken}
        renewed = {repair.position: repair for _, repair in taken}
        try:
            self._repair(taken, left, renewed)
        finally:
            for topic, repair in taken:
                if repair.position in left:
                    self._backlog.put_back(topic, renewed[repair.position])
        if not self._backlog.count:
            self.last_error = None
        now = time.monotonic()
        return self._wait(self.pace.drained(len(taken), now - started, now))

    def _wait(self, pause_s: float) -> float:
        self._due = time.monotonic() + pause_s
        return pause_s

    def _is_due(self, topic: str) -> bool:
        until, _ = self._held.get(topic, (0.0, 0.0))
        return until <= time.monotonic() and self._sides.definition(topic) is not None

    def _hold(self, topic: str, pause_s: float | None = None) -> None:
        """Leave a topic alone for a moment; without a given time with growing back-off."""
        _, before_s = self._held.get(topic, (0.0, PAUSE_S_MIN / 2))
        held_s = min(PAUSE_S_MAX, before_s * 2) if pause_s is None else pause_s
        self._held[topic] = (time.monotonic() + held_s, before_s if pause_s is not None else held_s)

    def _repair(
        self, taken: Sequence[tuple[str, WaitingRepair]], left: set[int], renewed: dict[int, WaitingRepair]
    ) -> None:
        """Repair what can be; takes it out of `left`. What is learnt of the others goes into `renewed`."""
        try:
            entries = self._journal.read([repair.position for _, repair in taken])
        except OSError as error:
            self.note(f"journal={self._journal.directory}: cannot be read: {error.strerror}")
            for topic, _ in taken:
                self._hold(topic, ASK_AGAIN_S)
            return
        damaged = [each for each, entry in zip(taken, entries, strict=True) if entry is None]
        self._leave([(repair.position, BufferEntry(topic, None, None, b"", 0)) for topic, repair in damaged], left)
        members = [
            TakenEntry(topic, repair, entry)
            for (topic, repair), entry in zip(taken, entries, strict=True)
            if entry is not None
        ]
        known = self._known_at_primary(members, left, renewed)
        wanted = self._missing_at_secondary(known, left)
        if wanted:
            self._write(wanted, left, renewed)

    def _known_at_primary(
        self, members: Sequence[TakenEntry], left: set[int], renewed: dict[int, WaitingRepair]
    ) -> list[TakenEntry]:
        """The entries that the primary has, with their queues, up to the first of each key of which it was not known.

        One that is found now waits for the next step: another intent with its id, which the primary has answered
        meanwhile, is then in the backlog behind it, or copied. One that was never stored has no order, so it leaves
        whatever is before it.
        """
        unknown = [each for each in members if each.repair.queue is None]
        answers = self._ask(self._sides.primary, unknown)
        self._absence.note(zip(unknown, answers, strict=True))
        found = dict(zip([each.repair.position for each in unknown], answers, strict=True))
        blocked: set[tuple[str, int]] = set()
        waiting: set[tuple[str, int]] = set()
        absent: list[tuple[int, BufferEntry]] = []
        known: list[TakenEntry] = []
        for each in members:
            position = each.repair.position
            if position in found and found[position][0] == Code.OK and self._absence.is_final(each):
                absent.append((position, each.entry))
            elif each.slot in blocked:
                continue
            elif position not in found:
                if each.slot not in waiting:
                    known.append(each)
            elif found[position][0] == Code.DUPLICATE and (queue := found[position][1]) is not None:
                renewed[position] = each.repair._replace(queue=queue)
                self._repeated.note(each.id)  # not marked as stored: after a crash it has to be noted again
                waiting.add(each.slot)
            elif found[position][0] == Code.INVALID and self._absence.is_settled(each):
                if each.slot not in waiting:
                    self.unverified += 1
                    known.append(each)
            else:
                self._cannot_tell(each, found[position], self._sides.primary)
                blocked.add(each.slot)
        self._leave(absent, left)
        self.dropped += len(absent)
        return known

    def _cannot_tell(self, each: TakenEntry, outcome: Outcome, side: SendTarget) -> None:
        self._hold(each.topic, ASK_AGAIN_S)
        if outcome[0] == Code.INVALID:
            self.note(f"topic={each.topic}: {side.name} has no look-up by id: start it with --look-up id")
        elif outcome[0] != Code.OK:
            self.note(f"topic={each.topic}: {side.name} does not tell whether it has a message")

    def _missing_at_secondary(self, known: Sequence[TakenEntry], left: set[int]) -> list[TakenEntry]:
        """The entries that the secondary lacks, up to the first of each key of which that is not known yet."""
        asked = [each for each in known if each.repair.is_asked_for or self._is_doubtful(each)]
        found = dict(
            zip([each.repair.position for each in asked], self._ask(self._sides.secondary, asked), strict=True)
        )
        lacks = self._counted([each for each in asked if found[each.repair.position][0] == Code.DUPLICATE])
        blocked: set[tuple[str, int]] = set()
        judged: set[tuple[str, str]] = set()
        wanted: list[TakenEntry] = []
        there: list[tuple[int, BufferEntry]] = []
        for each in known:
            outcome, is_lacking = found.get(each.repair.position), lacks.get(each.repair.position, False)
            if each.slot in blocked:
                continue
            if each.id in judged and self._is_doubtful(each):
                blocked.add(each.slot)  # what becomes of the one before it decides
                continue
            is_absent = outcome is not None and (outcome[0] in (Code.OK, Code.INVALID) or is_lacking)
            is_there = outcome is not None and outcome[0] == Code.DUPLICATE and is_lacking is False
            if is_there and self._is_count_final(each):
                there.append((each.repair.position, each.entry))
                continue
            judged.add(each.id)
            if outcome is None or (is_absent and self._is_attempt_settled(each)):
                wanted.append(each)
            else:
                if outcome[0] != Code.DUPLICATE:
                    self._cannot_tell(each, outcome, self._sides.secondary)
                elif is_lacking is None:
                    self.note(f"topic={each.topic}: a side does not tell how often it has an id")
                self._hold(each.topic, ASK_AGAIN_S)
                blocked.add(each.slot)
        self._leave(there, left)
        self.repaired += len(there)
        return wanted

    def _counted(self, members: Sequence[TakenEntry]) -> dict[int, bool | None]:
        """Whether the secondary, which has their ids, lacks entries all the same; by position. None: it is not known yet."""
        members = [each for each in members if self._is_doubtful(each)]
        at_primary = self._count(self._sides.primary, members)
        at_secondary = self._count(self._sides.secondary, members)
        return {
            each.repair.position: self._repeated.lacks(each.repair.position, *counts)
            for each, *counts in zip(members, at_primary, at_secondary, strict=True)
        }

    def _is_doubtful(self, each: TakenEntry) -> bool:
        """Whether the secondary may have its id from another intent."""
        return each.repair.position < self._began or each.id in self._repeated

    def _is_count_final(self, each: TakenEntry) -> bool:
        """Whether the primary has each copy of its id that it will get from this intent.

        Its client may hold a message whose caller has given up, and store it after the one that was sent again.
        """
        return self._absence.is_settled(each) or not self._is_doubtful(each)

    def _attempted_at(self, position: int) -> float | None:
        """Monotonic time of the last attempt to copy it; None: there was none."""
        return self._began_at if position < self._began else self._attempts.get(position)

    def _is_attempt_settled(self, each: TakenEntry) -> bool:
        at = self._attempted_at(each.repair.position)
        return at is None or time.monotonic() - at > self._sides.secondary.settled_after_s

    def _ask(self, side: SendTarget, members: Sequence[TakenEntry]) -> list[Outcome]:
        """The side's answer about each entry."""
        return self._answered(side, side.stored_copies, members, (int(Code.UNAVAILABLE), None, None))

    def _count(self, side: SendTarget, members: Sequence[TakenEntry]) -> list[int | None]:
        """How many copies of each entry's id the side has."""
        return self._answered(side, side.count_copies, members, None)

    def _answered(
        self, side: SendTarget, ask: Callable[..., list[Answer]], members: Sequence[TakenEntry], unknown: Answer
    ) -> list[Answer]:
        """The side's answer about each entry, by one question about all their ids; `unknown`: it cannot be asked now."""
        ids = {each.id: each for each in members}
        if not ids:
            return []
        names = {each.topic for each in members}
        try:
            destinations = self._sides.at(side, names)
        except ResolveError:
            return [unknown] * len(members)
        if not names <= destinations.keys():
            return [unknown] * len(members)
        since_ms = min(each.entry.accepted_at_ms - self._window_ms(each) for each in members) - MARGIN_MS
        slices = [
            MessageSlice(destinations[each.topic], None, each.entry.assigned_id, each.entry.message)
            for each in ids.values()
        ]
        shown = [each.shown_id for each in ids.values()]
        answers = dict(zip(ids, ask(slices, shown, max(0, since_ms), time.monotonic() + ASK_S), strict=True))
        return [answers[each.id] for each in members]

    def _window_ms(self, each: TakenEntry) -> int:
        """Age of a copy that an entry without an attempt may have: the primary said DUPLICATE."""
        definition = self._sides.definition(each.topic)
        has_attempt = self._attempted_at(each.repair.position) is not None or each.repair.queue is None
        return 0 if has_attempt or each.id in self._repeated or definition is None else definition.id_window_ms

    def _write(self, wanted: Sequence[TakenEntry], left: set[int], renewed: dict[int, WaitingRepair]) -> None:
        secondary = self._sides.secondary
        try:
            destinations = self._sides.at_secondary(self._queues({each.topic for each in wanted}))
        except ResolveError as error:
            self.note(str(error))
            for each in wanted:
                self._hold(each.topic, ASK_AGAIN_S)
            return
        fitting = {each.repair.position for each in wanted if takes(destinations.get(each.topic), each.repair.queue)}
        for topic in {each.topic for each in wanted if each.repair.position not in fitting}:
            self.note(f"topic={topic}: {secondary.name} does not have all its queues yet")
            self._hold(topic, ASK_AGAIN_S)
        wanted = [each for each in wanted if each.repair.position in fitting]
        slices = [
            MessageSlice(destinations[each.topic], each.binding, each.entry.assigned_id, each.entry.message)
            for each in wanted
        ]
        if not slices:
            return
        for each in wanted:  # until the answer is there
            self.attempted(each.repair.position)
            renewed[each.repair.position] = each.repair._replace(is_asked_for=True)
        answer: AsyncResult = AsyncResult()
        secondary.submit(secondary.served_as(FSYNC), slices, answer.set)
        self._settle(wanted, answer.get(), left, renewed)

    def _queues(self, topics: set[str]) -> dict[str, int | None]:
        """The primary's number of queues of topics that were unequal before; the others were compared. Raises ResolveError."""
        unequal = topics & self._sides.unequal.keys()
        found = self._sides.at_primary(unequal) if unequal else {}
        return {topic: found[topic].queues if topic in found else None for topic in topics}

    def _settle(
        self, wanted: Sequence[TakenEntry], outcomes: Sequence[ToldOutcome], left: set[int],
        renewed: dict[int, WaitingRepair],
    ) -> None:  # fmt: skip
        done: list[tuple[int, BufferEntry]] = []
        for each, outcome in zip(wanted, outcomes, strict=True):
            position, fate = each.repair.position, fate_of(outcome[0])
            if fate is Fate.STORED:
                done.append((position, each.entry))
                continue
            self.note_refusal(each.topic, outcome)
            if fate is Fate.REFUSED:
                self._give_up(each, int(outcome[0]), left)
                continue
            self._hold(each.topic)
            if fate is Fate.AWAY:
                self._attempts.pop(position, None)
                renewed[position] = each.repair._replace(is_asked_for=False)
        self._leave(done, left)
        self.repaired += len(done)
        if len(done) == len(wanted):
            for topic in {each.topic for each in wanted}:
                self._held.pop(topic, None)

    def _give_up(self, each: TakenEntry, code: int, left: set[int]) -> None:
        try:
            self._journal.give_up(each.entry, f"{self._sides.secondary.name} refused it with code {code}")
        except OSError as error:
            self.note(f"journal={self._journal.directory}: the dead-letter list cannot be written: {error}")
            self._hold(each.topic, ASK_AGAIN_S)
            return
        self.refused += 1
        self._leave([(each.repair.position, each.entry)], left)

    def _leave(self, entries: Sequence[tuple[int, BufferEntry]], left: set[int]) -> None:
        """Take entries out of the backlog for good."""
        if not entries:
            return
        positions = [position for position, _ in entries]
        left.difference_update(positions)
        for position in positions:
            self._attempts.pop(position, None)
        self._repeated.forget(positions)
        self._backlog.leave([entry for _, entry in entries], positions)
        self._journal.note_done(positions)
