"""Delayed messages of one engine: what the link server calls. No clock, socket or file of its own."""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from engine.errors import DiskFullError
from engine.link.layout import DUPLICATE, INVALID, NOT_CANCELLABLE, OK, TOO_LARGE, UNKNOWN_TOPIC
from engine.link.timer import ANY_QUEUE, Timer, parse
from engine.log import Log
from engine.log.format import BATCH_HEADER_SIZE
from engine.timers.counts import Counts
from engine.timers.firing import Firing
from engine.timers.native import Table, hash_id
from engine.timers.recovery import recover
from engine.timers.relocation import Carrying
from engine.timers.timer_store import Place, Shelf
from engine.timers.tombstones import PAUSE_MS, Marks

log = logging.getLogger("penstock.engine")

AWAKE_MS = 1000
"""Pending timers are looked at so often at least: a wall clock that was set forward is noticed then."""

REFUSED_MS = 1000
"""After a disk without room."""

SPARSE = 8
"""A sealed segment with fewer than one in so many of its timers pending is emptied: a start reads what is pending times this at most."""


class Added(NamedTuple):
    """What became of a timer that was to be added; of a DUPLICATE, where its first copy is unless that is still pending."""

    code: int
    queue: int = ANY_QUEUE
    offset: int = 0


class Timers:
    """Adds, cancels and fires. Everything runs in the loop and takes a few milliseconds at most, but for the start.

    Args:
        log: recovered; it holds the timers.
        now_ms: the wall clock, which due times are of.
    """

    def __init__(self, log: Log, now_ms: Callable[[], int]) -> None:
        self._log, self._now_ms = log.for_timers, now_ms
        self.counts = Counts()
        self.table = Table(now_ms())
        self._shelf = Shelf(self._log, self.table)
        self._marks = Marks(self._log)
        self._firing = Firing(self._shelf, self._marks, self.counts)
        self._carrying = Carrying(self._shelf, self._marks, self.counts)
        self._sparse: deque[int] = deque()
        self._tidying: Iterator[None] | None = None
        self._held_until_ms = self._noted_base = 0
        recover(self._shelf, self._marks)
        self._note_all()

    # -- what producers and operators ask

    def add(self, records: bytes, count: int) -> list[Added]:
        """Take timers in, packed one behind the other. In the page cache on return. Raises DiskFullError."""
        if self._log.refusal:
            raise DiskFullError(self._log.refusal)
        answers: list[Added] = []
        accepted: list[tuple[Timer, bytes]] = []
        ids: set[tuple[int, bytes]] = set()
        at = 0
        for _ in range(count):
            timer = parse(records, at)
            size = 4 + int.from_bytes(records[at : at + 4], "little")
            answer = Added(INVALID) if timer is None else self._check(timer, size, ids)
            if timer is not None and answer.code == OK:
                accepted.append((timer, records[at : at + size]))
                ids.add((timer.topic_id, timer.shown_id))
            answers.append(answer)
            at += size
        places = self._shelf.append([packed for _, packed in accepted])
        for place, (timer, _) in zip(places, accepted, strict=True):
            self._shelf.enter(place, timer)
        self.counts.added += len(accepted)
        return answers

    def _check(self, timer: Timer, size: int, ids: set[tuple[int, bytes]]) -> Added:
        queues = self._log.queue_count(timer.topic_id)
        if not queues:
            return Added(UNKNOWN_TOPIC)
        if size + BATCH_HEADER_SIZE > self._log.batch_bytes_max:
            return Added(TOO_LARGE)
        shown_id = timer.shown_id
        if timer.previous or not shown_id or timer.due_ms < 0 or not (timer.queue < queues or timer.queue == ANY_QUEUE):
            return Added(INVALID)
        if (timer.topic_id, shown_id) in ids or self._shelf.find(timer.topic_id, shown_id) is not None:
            return Added(DUPLICATE)
        first_copy = self._log.first_copy(timer.topic_id, shown_id) if timer.id_window_ms else None
        return Added(OK) if first_copy is None else Added(DUPLICATE, *first_copy)

    def cancel(self, topic_id: int, shown_id: bytes) -> int:
        """Withdraw a pending timer, a loop with all its rounds to come. In the page cache on return. Raises DiskFullError."""
        found = self._shelf.find(topic_id, shown_id)
        if found is None:
            return NOT_CANCELLABLE
        place, timer = found
        self._marks.end_now([place, *self._rounds_before(timer)])
        self.table.remove(*place, hash_id(topic_id, shown_id))
        self.counts.cancelled += 1
        self._note(place.base)
        return OK

    def _rounds_before(self, timer: Timer) -> Iterator[tuple[int, int]]:
        """Fired rounds of its loop that are not marked yet. Without marks of theirs, a start would go on behind them."""
        waiting = self._marks.waiting() if timer.previous else {}
        before: Timer | None = timer
        while before is not None and (address := waiting.get(before.previous)) is not None:
            yield address
            before = self._shelf.read(Place(*address))

    def pending(self, start: int, limit: int) -> tuple[list[Timer], int]:
        """Some of the pending timers in no order: (those in `limit` cells from `start` on, where to go on or -1 at the end)."""
        entries, following = self.table.scan(start, limit)
        found = (self._shelf.read(Place(*entry[:2])) for entry in entries)
        return [timer for timer in found if timer is not None], following

    # -- time

    def step(self) -> int | None:
        """Do what is due, some of it; returns in how many milliseconds to call again, None when nothing is pending.

        Raises PartlyWrittenError: the process has to start again, for only recovery can tell which messages are in the log.
        """
        now_ms = self._now_ms()
        try:
            if 0 < self._held_until_ms - now_ms <= REFUSED_MS or self._log.refusal:
                raise DiskFullError(self._log.refusal)
            self._firing.step(now_ms)
            if self._marks.is_due(now_ms):
                for base in self._marks.write(now_ms):
                    self._note(base)
            self._tidy()
        except DiskFullError as error:
            if not 0 < self._held_until_ms - now_ms <= REFUSED_MS:
                log.warning("timers wait: %s", error)
                self._held_until_ms = now_ms + REFUSED_MS
            return max(1, self._held_until_ms - now_ms)
        return self.next_ms()

    def next_ms(self) -> int | None:
        """In how many milliseconds `step()` has something to do; None when nothing is pending."""
        now_ms = self._now_ms()
        next_at = self.table.next_at()
        waits = [] if next_at is None else [min(max(0, next_at - now_ms), AWAKE_MS)]
        if self._tidying is not None or self._sparse:
            waits.append(1)
        if self._marks:
            waits.append(1 if self._marks.is_due(now_ms) else PAUSE_MS)
        if self._firing.owes:
            waits.append(REFUSED_MS)
        return min(waits, default=None)

    def close(self) -> None:
        """Mark what has fired and is durable, so that the next start finds it done; not in front of rounds that are not stored yet."""
        while not self._firing.owes and self._marks.write(self._now_ms()):
            pass

    # -- segments

    def relocate(self, base: int) -> Iterator[None]:
        """Empty a segment that is about to go. Raises DiskFullError."""
        yield from self._carrying.carry(base)

    def forget(self, base: int) -> None:
        """The segment is gone."""
        self.table.detach(base)
        self._shelf.totals.pop(base, None)
        self._log.forget(base)

    def _note_all(self) -> None:
        """At the start, and when a segment is full: what ended while it was being written was not noted."""
        self._noted_base = self._log.active_base
        for base in self._shelf.totals:
            self._note(base)

    def _note(self, base: int) -> None:
        """Timers of the segment have ended: is it empty, or nearly?"""
        pending, total = self.table.pending_in(base), self._shelf.totals.get(base, 0)
        if base != self._log.active_base and pending * SPARSE < total and base not in self._sparse:
            self._sparse.append(base)

    def _tidy(self) -> None:
        """Empty one sparse segment, a step at a time."""
        if self._noted_base != self._log.active_base:
            self._note_all()
        if self._tidying is None:
            if not self._sparse:
                return
            self._tidying = self._carrying.carry(self._sparse[0])
        try:
            is_done = next(self._tidying, self) is self
        except DiskFullError:
            self._tidying = None
            raise
        if is_done:
            base = self._sparse.popleft()
            self._tidying = None
            if base in self._shelf.totals and not self.table.pending_in(base) and not self._marks.holds(base):
                self._log.all_ended(base)
                del self._shelf.totals[base]
                self.table.detach(base)
