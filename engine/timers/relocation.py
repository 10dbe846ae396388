"""Carrying pending timers on: their records are appended again, so that the segment that held them may go.

In this order: the copies are appended and synced; the table changes over; the first records are marked as ended. A crash in between leaves
copies that recovery finds void, because what they take over from is pending still. Who ends a timer while its copy is being synced
ends both.
"""

import logging
from collections.abc import Iterator

from engine.link.timer import Timer
from engine.timers.counts import Counts
from engine.timers.table import Entry
from engine.timers.timer_store import Place, Shelf
from engine.timers.tombstones import Marks

log = logging.getLogger("penstock.engine")

STEP_TIMERS = 200
SCAN_CELLS = 50_000


class Carrying:
    """Empties segments of pending timers."""

    def __init__(self, shelf: Shelf, marks: Marks, counts: Counts) -> None:
        self._shelf, self._marks, self._counts = shelf, marks, counts
        self._busy: set[int] = set()

    def carry(self, base: int) -> Iterator[None]:
        """Do it in steps of a few milliseconds; each `next()` is one. Raises DiskFullError, then what is left is pending as before."""
        while base in self._busy:
            yield
        self._busy.add(base)
        try:
            while self._shelf.table.pending_in(base):
                yield from self._pass(base)
        finally:
            self._busy.discard(base)

    def _pass(self, base: int) -> Iterator[None]:
        """Once through the table. What a full disk has given back meanwhile may be left."""
        start = 0
        while start >= 0:
            entries, start = self._shelf.table.scan(start, SCAN_CELLS, base)
            for first in range(0, len(entries), STEP_TIMERS):
                yield from self._carry(entries[first : first + STEP_TIMERS])
            yield

    def _carry(self, entries: list[Entry]) -> Iterator[None]:
        store, table, copies = self._shelf.log, self._shelf.table, self._marks.copies
        found = [(Place(*entry[:2]), timer, entry) for entry in entries if (timer := self._read(entry)) is not None]
        packed = [timer._replace(previous=place.position).pack() for place, timer, _ in found]
        moved = list(zip(found, self._shelf.append(packed), strict=True))
        copies.update((place, copy) for (place, _, _), copy in moved)
        synced: list[bool] = []
        try:
            store.when_durable(store.end_position, lambda: synced.append(True))
            while not synced:
                yield
            carried = []
            for (place, timer, entry), copy in moved:
                if table.remove(*place, entry[3]):
                    self._shelf.enter(copy, timer)
                    carried.append(place)
            self._counts.carried += len(carried)
            self._marks.carried(carried)
        finally:
            for (place, _, _), _ in moved:
                copies.pop(place, None)

    def _read(self, entry: Entry) -> Timer | None:
        base, at, due_ms, hashed = entry
        timer = self._shelf.read(Place(base, at))
        if timer is None and self._shelf.table.remove(base, at, hashed):
            self._counts.lost += 1
            log.error("position=%d: a delayed message, due at %d, does not verify: it is lost", base + at, due_ms)
        return timer
