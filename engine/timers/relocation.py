"""Relocation of pending timers: their records are appended again, so that their segment can be deleted.

Order: the copies are appended and synced; the table changes over; the old records are marked as ended. A crash in
between leaves copies that recovery ignores, because the records that they replace are still pending. A timer that ends
while its copy is being synced ends with its copy. A relocation that is given up leaves copies, which the next one uses.
"""

import errno
import logging
from collections.abc import Iterator

from common.limited_log import LimitedLog
from engine.errors import DiskFullError
from engine.link.timer import Timer
from engine.log.read.unreadable import LASTS_MS
from engine.timers.counts import TimerCounts
from engine.timers.table import TimerEntry
from engine.timers.timer_store import TimerAddress, TimerStore
from engine.timers.tombstones import Tombstones

limited = LimitedLog(logging.getLogger("penstock.engine"))

STEP_TIMERS = 200
SCAN_CELLS = 50_000


class Relocation:
    """Moves pending timers out of segments."""

    def __init__(self, store: TimerStore, tombstones: Tombstones, counts: TimerCounts) -> None:
        self._store, self._tombstones, self._counts = store, tombstones, counts
        self._busy: set[int] = set()
        self._unread_since: dict[int, int] = {}  # base of a segment -> since when timers in it cannot be read

    def relocate(self, base: int) -> Iterator[None]:
        """Move all timers out of a segment; each `next()` is a step. One that cannot be read for a minute stays behind.

        Raises:
            DiskFullError, OSError: the rest is still pending.
        """
        while base in self._busy:
            yield
        self._busy.add(base)
        unreadable: set[TimerAddress] = set()
        try:
            while self._store.table.pending_in(base) > len(unreadable):
                unreadable.clear()
                yield from self._pass(base, unreadable)
        finally:
            self._busy.discard(base)
        self._wait_for_unread(base, bool(unreadable))

    def _wait_for_unread(self, base: int, is_unread: bool) -> None:
        """Raise OSError while timers of the segment may become readable, or the next start will read them."""
        is_damaged = base in self._store.damaged
        if not is_unread and not is_damaged:
            self._unread_since.pop(base, None)
            return
        now_ms = self._store.log.monotonic_ms()
        since_ms = self._unread_since.setdefault(base, now_ms)
        if now_ms - since_ms < LASTS_MS:
            raise OSError(errno.EIO, "delayed messages in it cannot be read now")
        if is_damaged and not is_unread and self._store.can_read(base):
            self._unread_since[base] = now_ms  # looked at again after a minute
            raise OSError(errno.EIO, "delayed messages that the start could not read can be read: the next start does")
        del self._unread_since[base]

    def _pass(self, base: int, unreadable: set[TimerAddress]) -> Iterator[None]:
        """Scan the table once. Timers that a full disk has returned to it meanwhile may be left."""
        start = 0
        while start >= 0:
            entries, start = self._store.table.scan(start, SCAN_CELLS, base)
            for first in range(0, len(entries), STEP_TIMERS):
                yield from self._relocate(entries[first : first + STEP_TIMERS], unreadable)
            yield

    def _relocate(self, entries: list[TimerEntry], unreadable: set[TimerAddress]) -> Iterator[None]:
        store, table, copies = self._store.log, self._store.table, self._tombstones.copies
        found = [
            (TimerAddress(*entry[:2]), timer, entry)
            for entry in entries
            if (timer := self._read(entry, unreadable)) is not None
        ]
        refusal = self._append_copies([(address, timer) for address, timer, _ in found if address not in copies])
        synced: list[bool] = []
        store.when_durable(store.end_position, lambda: synced.append(True))
        while not synced:
            yield
        carried = []
        for address, timer, entry in found:
            # Without a copy: it has ended meanwhile, or the disk is full.
            if address in copies and table.remove(*address, entry[3]):
                self._store.enter(copies[address], timer)
                carried.append(address)
        self._counts.carried += len(carried)
        self._tombstones.relocated(carried)
        if refusal is not None:
            raise refusal

    def _append_copies(self, found: list[tuple[TimerAddress, Timer]]) -> DiskFullError | None:
        """Append copies of the timers, as many as the disk has room for, and note them."""
        packed = [timer._replace(previous=address.position).pack() for address, timer in found]
        try:
            appended = self._store.append(packed)
        except DiskFullError as error:
            return error
        self._tombstones.copies.update(zip((address for address, _ in found), appended, strict=False))
        left = len(found) - len(appended)
        return DiskFullError(f"no space for {left} copies of delayed messages") if left else None

    def _read(self, entry: TimerEntry, unreadable: set[TimerAddress]) -> Timer | None:
        """The timer; None when it cannot be moved: it is lost, or in a bad sector. Raises OSError: read it later."""
        base, at, due_ms, hashed = entry
        try:
            timer = self._store.read(TimerAddress(base, at))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            limited.error("position=%d: delayed message, due at %d ms: not relocated: %s", base + at, due_ms, error)
            unreadable.add(TimerAddress(base, at))
            return None
        if timer is None and self._store.table.remove(base, at, hashed):
            self._counts.lost += 1
            limited.error(
                "position=%d: delayed message, due at %d ms: lost: its record fails verification", base + at, due_ms
            )
        return timer
