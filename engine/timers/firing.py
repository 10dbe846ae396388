"""Due timers become ordinary records: one append with a batch a queue, then the next rounds of loops."""

import logging
from collections.abc import Iterable, Mapping

from engine.errors import DiskFullError
from engine.link.timer import Timer
from engine.log.format import CODE_DUPLICATE, CODE_NO_ROOM, CODE_OK
from engine.timers import loops
from engine.timers.counts import Counts
from engine.timers.gather import Gathered
from engine.timers.native import gather
from engine.timers.table import Entry
from engine.timers.timer_store import Place, Shelf
from engine.timers.tombstones import Marks

log = logging.getLogger("penstock.engine")

STEP_TIMERS, STEP_BYTES = 1000, 512 << 10
"""Fired at once: a few milliseconds of work."""

UNREAD_MS = 60_000
"""What the disk did not give is tried again after so long; nothing waits for it."""


class Firing:
    """Fires what the table gives out as due.

    A timer that fires leaves the table, is appended, and is marked later. Nothing of it is lost in between: until its mark is in the log,
    the log says that it is pending, and recovery finds the fired copy by its id.
    """

    def __init__(self, shelf: Shelf, marks: Marks, counts: Counts) -> None:
        self._shelf, self._marks, self._counts = shelf, marks, counts
        self._turn = 0
        self._limit = STEP_TIMERS
        self._bytes_max = min(STEP_BYTES, shelf.log.batch_bytes_max // 4)
        self._owed: list[tuple[Place, Timer]] = []
        """Rounds that a full disk refused, with the place of the one before, which is not marked until they are stored."""

    def step(self, now_ms: int) -> int:
        """Fire some of what is due and return how many left the table.

        Raises DiskFullError, then what was not stored is pending again; PartlyWrittenError, then only a restart can tell what was.
        """
        self.append_rounds({})
        entries = self._shelf.table.take_due(now_ms, self._limit)
        if not entries:
            return 0
        self._turn += 1
        self._marks.will_fire()
        gathered = gather(self._shelf.log, entries, self._bytes_max, self._turn)
        self._give_back(entries[gathered.taken :])
        self._limit = max(1, min(STEP_TIMERS, self._bytes_max * gathered.taken // max(gathered.size, 1)))
        self._set_aside(entries, gathered, now_ms)
        self._append(entries, gathered, now_ms)
        return gathered.taken

    def _give_back(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._shelf.table.add(*entry)

    def _set_aside(self, entries: list[Entry], gathered: Gathered, now_ms: int) -> None:
        """What could not be read: for ever, or for now."""
        for number in gathered.damaged:
            self._lose(entries[number], "does not verify")
        for number in gathered.unread:
            base, at, due_ms, hashed = entries[number]
            log.error("position=%d: a delayed message, due at %d, cannot be read now: it waits", base + at, due_ms)
            self._shelf.table.add(base, at, now_ms + UNREAD_MS, hashed)

    def _lose(self, entry: Entry, why: str) -> None:
        base, at, due_ms, _ = entry
        self._counts.lost += 1
        log.error("position=%d: a delayed message, due at %d, %s: it is lost", base + at, due_ms, why)
        self._marks.fired([(base, at)])

    def _append(self, entries: list[Entry], gathered: Gathered, now_ms: int) -> None:
        if not gathered.groups:
            return
        try:
            results = self._shelf.log.append(gathered.batches, len(gathered.groups))
        except DiskFullError:
            self._give_back(entries[number] for group in gathered.groups for number in group)
            raise
        fired: dict[tuple[int, int], Timer | None] = {}
        refused = False
        for (code, _), group in zip(results, gathered.groups, strict=True):
            if code in (CODE_OK, CODE_DUPLICATE):
                for number in group:
                    base, at, due_ms, _ = entries[number]
                    fired[base, at] = gathered.looping.get(number)
                    self._counts.observe(now_ms - due_ms)
                self._counts.duplicates += code == CODE_DUPLICATE
            elif code == CODE_NO_ROOM:
                refused = True
                self._give_back(entries[number] for number in group)
            else:
                for number in group:
                    self._lose(entries[number], f"is refused with code {code}")
        self.append_rounds(fired)
        if refused:
            raise DiskFullError("no room for a segment")

    @property
    def owes(self) -> bool:
        """Whether rounds of loops wait for room on the disk."""
        return bool(self._owed)

    def append_rounds(self, fired: Mapping[tuple[int, int], Timer | None]) -> None:
        """These have fired, with their timers where they are loops: append the next rounds, and those that a full disk has refused before.

        Raises DiskFullError.
        """
        ended: list[tuple[int, int]] = []
        for (base, at), timer in fired.items():
            following = None if timer is None else loops.following(timer, base + at)
            if following is None:
                ended.append((base, at))
            else:
                self._owed.append((Place(base, at), following))
        self._marks.fired(ended)
        if not self._owed:
            return
        owed = self._owed
        for place, (_, timer) in zip(self._shelf.append([timer.pack() for _, timer in owed]), owed, strict=True):
            self._shelf.enter(place, timer)
        self._owed = []
        self._marks.fired([before for before, _ in owed])
