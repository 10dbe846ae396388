"""Delayed messages of one engine: add, cancel, list, step. Uses no clock, socket or file of its own."""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from engine.errors import DiskFullError
from engine.link.codes import DUPLICATE, INVALID, NOT_CANCELLABLE, OK, TOO_LARGE, UNKNOWN_TOPIC
from engine.link.timer import ANY_QUEUE, Timer, parse
from engine.log import Log
from engine.log.format import BATCH_HEADER_SIZE
from engine.timers.counts import TimerCounts
from engine.timers.firing import Firing
from engine.timers.native import TimerTable, hash_id
from engine.timers.recovery import recover
from engine.timers.relocation import Relocation
from engine.timers.timer_store import TimerAddress, TimerStore
from engine.timers.tombstones import PAUSE_MS, Tombstones

log = logging.getLogger("penstock.engine")

AWAKE_MS = 1000
"""Longest time between two checks of pending timers, so that a wall clock that was set forward is noticed."""

REFUSED_MS = 1000
"""Pause after a full disk."""

SPARSE = 8
"""A sealed segment is emptied when fewer than 1 in SPARSE of its timers are pending.

That bounds the reads of a start.
"""


class Added(NamedTuple):
    """Outcome of an add; for a DUPLICATE, queue and offset of the first copy unless that is still pending."""

    code: int
    queue: int = ANY_QUEUE
    offset: int = 0


class Timers:
    """Adds, cancels and fires timers.

    All calls run in the loop and take a few milliseconds at most, except the constructor.

    Args:
        log: the recovered log that holds the timers.
        now_ms: the wall clock, for due times.
    """

    def __init__(self, log: Log, now_ms: Callable[[], int]) -> None:
        self._log, self._now_ms = log.for_timers, now_ms
        self.counts = TimerCounts()
        self.table = TimerTable(now_ms())
        self._store = TimerStore(self._log, self.table)
        self._tombstones = Tombstones(self._log)
        self._firing = Firing(self._store, self._tombstones, self.counts)
        self._relocation = Relocation(self._store, self._tombstones, self.counts)
        self._sparse: deque[int] = deque()
        self._tidying: Iterator[None] | None = None
        self._held_until_ms = self._noted_base = 0
        recover(self._store, self._tombstones)
        self._note_all()

    # -- for producers and operators

    def add(self, records: bytes, count: int) -> list[Added]:
        """Add `count` packed timers. They are in the page cache on return. Raises DiskFullError."""
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
        addresses = self._store.append([packed for _, packed in accepted])
        for address, (timer, _) in zip(addresses, accepted, strict=True):
            self._store.enter(address, timer)
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
        if (timer.topic_id, shown_id) in ids or self._store.find(timer.topic_id, shown_id) is not None:
            return Added(DUPLICATE)
        first_copy = self._log.first_copy(timer.topic_id, shown_id) if timer.id_window_ms else None
        return Added(OK) if first_copy is None else Added(DUPLICATE, *first_copy)

    def cancel(self, topic_id: int, shown_id: bytes) -> int:
        """Cancel a pending timer, a loop with all its further rounds.

        In the page cache on return. Raises DiskFullError.
        """
        found = self._store.find(topic_id, shown_id)
        if found is None:
            return NOT_CANCELLABLE
        address, timer = found
        self._tombstones.end_now([address, *self._rounds_before(timer)])
        self.table.remove(*address, hash_id(topic_id, shown_id))
        self.counts.cancelled += 1
        self._note(address.base)
        return OK

    def _rounds_before(self, timer: Timer) -> Iterator[tuple[int, int]]:
        """Yield fired rounds of its loop without tombstone.

        If they stayed unmarked, a start would continue the loop.
        """
        waiting = self._tombstones.waiting() if timer.previous else {}
        before: Timer | None = timer
        while before is not None and (address := waiting.get(before.previous)) is not None:
            yield address
            before = self._store.read(TimerAddress(*address))

    def pending(self, start: int, limit: int) -> tuple[list[Timer], int]:
        """Return (pending timers in `limit` cells from `start` on, in no order, the next start or -1 at the end)."""
        entries, following = self.table.scan(start, limit)
        found = (self._store.read(TimerAddress(*entry[:2])) for entry in entries)
        return [timer for timer in found if timer is not None], following

    # -- time

    def step(self) -> int | None:
        """Do some of the due work; returns the milliseconds until the next call, None without pending timers.

        Raises PartlyWrittenError: the process has to restart, because only recovery can tell which messages are in the
        log.
        """
        now_ms = self._now_ms()
        try:
            if 0 < self._held_until_ms - now_ms <= REFUSED_MS or self._log.refusal:
                raise DiskFullError(self._log.refusal)
            self._firing.step(now_ms)
            if self._tombstones.is_due(now_ms):
                for base in self._tombstones.write(now_ms):
                    self._note(base)
            self._tidy()
        except DiskFullError as error:
            if not 0 < self._held_until_ms - now_ms <= REFUSED_MS:
                log.warning("delayed messages wait for disk space: %s", error)
                self._held_until_ms = now_ms + REFUSED_MS
            return max(1, self._held_until_ms - now_ms)
        return self.next_ms()

    def next_ms(self) -> int | None:
        """Return the milliseconds until `step()` has work; None without pending timers."""
        now_ms = self._now_ms()
        next_at = self.table.next_at()
        waits = [] if next_at is None else [min(max(0, next_at - now_ms), AWAKE_MS)]
        if self._tidying is not None or self._sparse:
            waits.append(1)
        if self._tombstones:
            waits.append(1 if self._tombstones.is_due(now_ms) else PAUSE_MS)
        if self._firing.owes:
            waits.append(REFUSED_MS)
        return min(waits, default=None)

    def close(self) -> None:
        """Mark durable fired timers, so that the next start finds them done.

        Skipped while rounds of loops are not stored yet.
        """
        while not self._firing.owes and self._tombstones.write(self._now_ms()):
            pass

    # -- segments

    def relocate(self, base: int) -> Iterator[None]:
        """Move pending timers out of a segment before its deletion. Raises DiskFullError."""
        yield from self._relocation.relocate(base)

    def forget(self, base: int) -> None:
        """Forget a deleted segment."""
        self.table.detach(base)
        self._store.totals.pop(base, None)
        self._log.forget(base)

    def _note_all(self) -> None:
        """Check all segments, at the start and when a segment is full: the active segment is not checked before."""
        self._noted_base = self._log.active_base
        for base in self._store.totals:
            self._note(base)

    def _note(self, base: int) -> None:
        """Queue the segment for emptying if few of its timers are pending."""
        pending, total = self.table.pending_in(base), self._store.totals.get(base, 0)
        if base != self._log.active_base and pending * SPARSE < total and base not in self._sparse:
            self._sparse.append(base)

    def _tidy(self) -> None:
        """Do one step of emptying sparse segments."""
        if self._noted_base != self._log.active_base:
            self._note_all()
        if self._tidying is None:
            if not self._sparse:
                return
            self._tidying = self._relocation.relocate(self._sparse[0])
        try:
            is_done = next(self._tidying, self) is self
        except DiskFullError:
            self._tidying = None
            raise
        if is_done:
            base = self._sparse.popleft()
            self._tidying = None
            if base in self._store.totals and not self.table.pending_in(base) and not self._tombstones.holds(base):
                self._log.all_ended(base)
                del self._store.totals[base]
                self.table.detach(base)
