"""Delayed messages of one engine: add, cancel, list, step. Uses no clock, socket or file of its own."""

import logging
from collections import deque
from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import NamedTuple

from common.limited_log import LimitedLog
from engine.errors import DiskFullError
from engine.link.claim import CLAIM_QUEUE
from engine.link.codes import CLAIMED, DUPLICATE, INVALID, NOT_CANCELLABLE, OK, TOO_LARGE, UNKNOWN_TOPIC
from engine.link.timer import ANY_QUEUE, DUE_MS_MAX, Timer, parse
from engine.log import Log
from engine.log.format import BATCH_HEADER_SIZE
from engine.timers.counts import TimerCounts
from engine.timers.firing import Firing
from engine.timers.missing import MissingTimers
from engine.timers.native import TimerTable, hash_id
from engine.timers.recovery import recover
from engine.timers.relocation import Relocation
from engine.timers.timer_store import TimerAddress, TimerStore
from engine.timers.tombstones import PAUSE_MS, Tombstones
from engine.timers.topic_search import TopicSearch

limited = LimitedLog(logging.getLogger("penstock.engine"))

AWAKE_MS = 1000
"""Longest time between two checks of pending timers, so that a wall clock that was set forward is noticed."""

REFUSED_MS = 1000
"""Pause after a full disk."""

SPARSE = 8
"""A sealed segment is emptied when fewer than 1 in SPARSE of its timers are pending.

That bounds the reads of a start.
"""


class Added(NamedTuple):
    """Outcome of an add.

    For a DUPLICATE, queue and offset of the first copy unless that is still pending; for a CLAIMED, the claim's queue.
    """

    code: int
    queue: int = ANY_QUEUE
    offset: int = 0


def timed(timer: Timer, now_ms: int) -> Timer:
    """The timer at its moment: a delay counts from now, and a moment in the past is now."""
    if timer.due_ms >= now_ms:
        return timer
    return timer._replace(due_ms=now_ms - min(timer.due_ms, 0))


Nearest = Callable[[str, int, int], int | None]


def _owns(log: Log, nearest: Nearest, topic_id: int, queue: int) -> bool:
    topic = log.topic_by_id(topic_id)
    return topic is None or nearest(topic.name, queue, topic.queues) == queue


class Timers:
    """Adds, cancels and fires timers.

    All calls run in the loop and take a few milliseconds at most, except the constructor.

    Args:
        log: the recovered log that holds the timers.
        now_ms: the wall clock, for due times.
        nearest: the first of a topic's queues that is this engine's, from a queue on: `QueueOwnership.nearest`.
    """

    def __init__(self, log: Log, now_ms: Callable[[], int], nearest: Nearest | None = None) -> None:
        self._log, self._now_ms = log.for_timers, now_ms
        if nearest is not None:
            self._log.owns = partial(_owns, log, nearest)
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
        self._missing = MissingTimers(self._store)
        self._note_all()

    # -- for producers and operators

    def add(self, records: bytes, count: int) -> list[Added]:
        """Add `count` packed timers. Those with OK are in the page cache on return, the others are not in the log.

        Raises DiskFullError: none is in the log. PartlyWrittenError: only a restart can tell.
        """
        if self._log.refusal:
            raise DiskFullError(self._log.refusal)
        now_ms = self._now_ms()
        answers: list[Added] = []
        accepted: list[tuple[int, Timer, bytes]] = []
        ids: set[tuple[int, bytes]] = set()
        at = 0
        for number in range(count):
            sent = parse(records, at)
            size = 4 + int.from_bytes(records[at : at + 4], "little")
            timer = None if sent is None else timed(sent, now_ms)
            answer = Added(INVALID) if timer is None else self._check(timer, size, ids)
            if timer is not None and answer.code == OK:
                accepted.append((number, timer, records[at : at + size] if timer is sent else timer.pack()))
                ids.add((timer.topic_id, timer.shown_id))
            answers.append(answer)
            at += size
        addresses = self._store.append([packed for _, _, packed in accepted])
        for address, (_, timer, _) in zip(addresses, accepted, strict=False):
            self._store.enter(address, timer)
        for number, _, _ in accepted[len(addresses) :]:
            answers[number] = Added(DiskFullError.code)
        self.counts.added += len(addresses)
        return answers

    def _check(self, timer: Timer, size: int, ids: set[tuple[int, bytes]]) -> Added:
        queues = self._log.queue_count(timer.topic_id)
        if not queues:
            return Added(UNKNOWN_TOPIC)
        if size + BATCH_HEADER_SIZE > self._log.batch_bytes_max:
            return Added(TOO_LARGE)
        shown_id = timer.shown_id
        if (
            timer.previous
            or not shown_id
            or timer.due_ms > DUE_MS_MAX
            or not (timer.queue < queues or timer.queue == ANY_QUEUE)
        ):
            return Added(INVALID)
        if (timer.topic_id, shown_id) in ids or self._store.find(timer.topic_id, shown_id) is not None:
            return Added(DUPLICATE)
        first_copy = self._log.first_copy(timer.topic_id, shown_id) if timer.id_window_ms else None
        if first_copy is None or first_copy[0] == CLAIM_QUEUE | timer.queue:
            return Added(OK)
        queue, offset = first_copy
        return Added(CLAIMED, queue ^ CLAIM_QUEUE) if queue & CLAIM_QUEUE else Added(DUPLICATE, queue, offset)

    def holds(self, topic_id: int, shown_id: bytes) -> bool:
        """Whether a delayed message with that id is pending."""
        return self._store.find(topic_id, shown_id) is not None

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

    def search_topics(self, wanted: Container[int]) -> TopicSearch | None:
        """Begin to search for those of the topics that have a pending delayed message.

        It ends an earlier search. None: timers are pending that the table does not have, so no topic can be excluded.
        """
        return None if self.are_missing or self._firing.owes else TopicSearch(self._store, wanted)

    # -- time

    def step(self) -> int | None:
        """Do some of the due work; returns the milliseconds until the next call, None without pending timers.

        Raises PartlyWrittenError, TimersReturnedError: the process has to restart, because only recovery can tell which
        messages are in the log, or take in what the last one could not read.
        """
        self._missing.look()
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
                limited.warning("delayed messages wait for disk space: %s", error)
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
        look_ms = self._missing.next_ms()
        if look_ms is not None:
            waits.append(look_ms)
        return min(waits, default=None)

    def close(self) -> None:
        """Mark durable fired timers, so that the next start finds them done.

        Skipped while rounds of loops are not stored yet.
        """
        while not self._firing.owes and self._tombstones.write(self._now_ms()):
            pass

    @property
    def are_marked(self) -> bool:
        """Whether no timer that has fired lacks its mark, so that the table can be made again from the log alone."""
        return not self._firing.owes and not self._tombstones and not self.are_missing

    # -- segments

    def relocate(self, base: int) -> Iterator[None]:
        """Move pending timers out of a segment before its deletion. Raises DiskFullError, OSError."""
        yield from self._relocation.relocate(base)

    def forget(self, base: int) -> None:
        """Forget a segment that is going to be deleted. What is still pending there was in bad sectors, and is lost.

        Raises OSError when the view cannot be read; nothing has changed then.
        """
        self._log.forget(base)
        if self.table.pending_in(base):
            self._firing.lose_all(base)
        self.table.detach(base)
        self._tombstones.forget(base)
        self._store.totals.pop(base, None)
        self._store.damaged.discard(base)

    @property
    def are_missing(self) -> bool:
        """Whether the start could not read all pending timers: they are in the log, and the next start reads them."""
        return bool(self._store.damaged)

    def _note_all(self) -> None:
        """Check all segments, at the start and when a segment is full: the active segment is not checked before."""
        self._noted_base = self._log.active_base
        for base in self._store.totals:
            self._note(base)

    def _note(self, base: int) -> None:
        """Queue the segment for emptying if few of its timers are pending.

        One that could not be read as a whole stays for the next start, until its retention ends.
        """
        if base in self._store.damaged:
            return
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
        except OSError as error:
            base = self._sparse.popleft()  # noted again when the next segment is full
            self._tidying = None
            limited.warning("position=%d: the segment's delayed messages stay there: %s", base, error)
            return
        if is_done:
            base = self._sparse.popleft()
            self._tidying = None
            if base in self._store.totals and not self.table.pending_in(base) and not self._tombstones.holds(base):
                self._log.all_ended(base)
                del self._store.totals[base]
                self.table.detach(base)
