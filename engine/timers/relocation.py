"""Relocation of pending timers: their records are appended again, so that their segment can be deleted.

Order: the copies are appended and synced; the table changes over; the old records are marked as ended. A crash in
between leaves copies that recovery ignores, because the records that they replace are still pending. A timer that ends
while its copy is being synced ends with its copy.
"""

import logging
from collections.abc import Iterator

from engine.link.timer import Timer
from engine.timers.counts import TimerCounts
from engine.timers.table import TimerEntry
from engine.timers.timer_store import TimerAddress, TimerStore
from engine.timers.tombstones import Tombstones

log = logging.getLogger("penstock.engine")

STEP_TIMERS = 200
SCAN_CELLS = 50_000


class Relocation:
    """Moves pending timers out of segments."""

    def __init__(self, store: TimerStore, tombstones: Tombstones, counts: TimerCounts) -> None:
        self._store, self._tombstones, self._counts = store, tombstones, counts
        self._busy: set[int] = set()

    def relocate(self, base: int) -> Iterator[None]:
        """Move all timers out of a segment; each `next()` is a step.

        Raises DiskFullError; then the rest is still pending.
        """
        while base in self._busy:
            yield
        self._busy.add(base)
        try:
            while self._store.table.pending_in(base):
                yield from self._pass(base)
        finally:
            self._busy.discard(base)

    def _pass(self, base: int) -> Iterator[None]:
        """Scan the table once. Timers that a full disk has returned to it meanwhile may be left."""
        start = 0
        while start >= 0:
            entries, start = self._store.table.scan(start, SCAN_CELLS, base)
            for first in range(0, len(entries), STEP_TIMERS):
                yield from self._relocate(entries[first : first + STEP_TIMERS])
            yield

    def _relocate(self, entries: list[TimerEntry]) -> Iterator[None]:
        store, table, copies = self._store.log, self._store.table, self._tombstones.copies
        found = [
            (TimerAddress(*entry[:2]), timer, entry) for entry in entries if (timer := self._read(entry)) is not None
        ]
        packed = [timer._replace(previous=address.position).pack() for address, timer, _ in found]
        moved = list(zip(found, self._store.append(packed), strict=True))
        copies.update((address, copy) for (address, _, _), copy in moved)
        synced: list[bool] = []
        try:
            store.when_durable(store.end_position, lambda: synced.append(True))
            while not synced:
                yield
            carried = []
            for (address, timer, entry), copy in moved:
                if table.remove(*address, entry[3]):
                    self._store.enter(copy, timer)
                    carried.append(address)
            self._counts.carried += len(carried)
            self._tombstones.relocated(carried)
        finally:
            for (address, _, _), _ in moved:
                copies.pop(address, None)

    def _read(self, entry: TimerEntry) -> Timer | None:
        base, at, due_ms, hashed = entry
        timer = self._store.read(TimerAddress(base, at))
        if timer is None and self._store.table.remove(base, at, hashed):
            self._counts.lost += 1
            log.error(
                "position=%d: delayed message, due at %d ms: lost: its record fails verification", base + at, due_ms
            )
        return timer
