"""Firing: due timers become ordinary records, one batch per queue, then the next rounds of loops are appended."""

import logging
from collections.abc import Iterable, Mapping

from engine.errors import DiskFullError
from engine.link.timer import Timer
from engine.log.format import CODE_DUPLICATE, CODE_NO_ROOM, CODE_OK
from engine.timers import loops
from engine.timers.counts import TimerCounts
from engine.timers.gather import Gathered
from engine.timers.native import gather
from engine.timers.table import TimerEntry
from engine.timers.timer_store import TimerAddress, TimerStore
from engine.timers.tombstones import Tombstones

log = logging.getLogger("penstock.engine")

STEP_TIMERS, STEP_BYTES = 1000, 512 << 10
"""Timers and bytes per step: a few milliseconds of work."""

UNREAD_MS = 60_000
"""Delay of timers that could not be read; nothing else waits for them."""


class Firing:
    """Fires due timers of the table.

    A timer leaves the table, is appended, and gets its tombstone later. A crash in between loses nothing: until the
    tombstone is in the log the timer is pending there, and recovery finds the fired message by its id.
    """

    def __init__(self, store: TimerStore, tombstones: Tombstones, counts: TimerCounts) -> None:
        self._store, self._tombstones, self._counts = store, tombstones, counts
        self._turn = 0
        self._limit = STEP_TIMERS
        self._bytes_max = min(STEP_BYTES, store.log.batch_bytes_max // 4)
        self._owed: list[tuple[TimerAddress, Timer]] = []
        """Next rounds that a full disk refused, each with the address of the round before.

        The earlier round is not marked until the next one is stored.
        """

    def step(self, now_ms: int) -> int:
        """Fire some due timers; returns how many left the table.

        Raises DiskFullError, then timers that were not stored are pending again; PartlyWrittenError, then only a
        restart can tell which were stored.
        """
        self.append_rounds({})
        entries = self._store.table.pop_due(now_ms, self._limit)
        if not entries:
            return 0
        self._turn += 1
        self._tombstones.will_fire()
        gathered = gather(self._store.log, entries, self._bytes_max, self._turn)
        self._give_back(entries[gathered.taken :])
        self._limit = max(1, min(STEP_TIMERS, self._bytes_max * gathered.taken // max(gathered.size, 1)))
        self._set_aside(entries, gathered, now_ms)
        self._append(entries, gathered, now_ms)
        return gathered.taken

    def _give_back(self, entries: Iterable[TimerEntry]) -> None:
        for entry in entries:
            self._store.table.insert(*entry)

    def _set_aside(self, entries: list[TimerEntry], gathered: Gathered, now_ms: int) -> None:
        """Drop timers with damaged records; postpone unreadable ones."""
        for number in gathered.damaged:
            self._lose(entries[number], "its record fails verification")
        for number in gathered.unread:
            base, at, due_ms, hashed = entries[number]
            log.error(
                "position=%d: delayed message, due at %d ms: postponed: its record cannot be read now",
                base + at,
                due_ms,
            )
            self._store.table.insert(base, at, now_ms + UNREAD_MS, hashed)

    def _lose(self, entry: TimerEntry, cause: str) -> None:
        base, at, due_ms, _ = entry
        self._counts.lost += 1
        log.error("position=%d: delayed message, due at %d ms: lost: %s", base + at, due_ms, cause)
        self._tombstones.fired([(base, at)])

    def _append(self, entries: list[TimerEntry], gathered: Gathered, now_ms: int) -> None:
        if not gathered.groups:
            return
        try:
            results = self._store.log.append(gathered.batches, len(gathered.groups))
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
                    self._lose(entries[number], f"the log refused it with code {code}")
        self.append_rounds(fired)
        if refused:
            raise DiskFullError("no space for a log segment")

    @property
    def owes(self) -> bool:
        """Whether rounds of loops wait for free disk space."""
        return bool(self._owed)

    def append_rounds(self, fired: Mapping[tuple[int, int], Timer | None]) -> None:
        """Append the next rounds of fired loops, and rounds that a full disk has refused before.

        Raises DiskFullError.
        """
        ended: list[tuple[int, int]] = []
        for (base, at), timer in fired.items():
            following = None if timer is None else loops.following(timer, base + at)
            if following is None:
                ended.append((base, at))
            else:
                self._owed.append((TimerAddress(base, at), following))
        self._tombstones.fired(ended)
        if not self._owed:
            return
        owed = self._owed
        for address, (_, timer) in zip(self._store.append([timer.pack() for _, timer in owed]), owed, strict=True):
            self._store.enter(address, timer)
        self._owed = []
        self._tombstones.fired([before for before, _ in owed])
