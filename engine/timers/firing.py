"""Firing: due timers become ordinary records, one batch per queue, then the next rounds of loops are appended."""

import logging
from collections.abc import Iterable, Mapping

from common.limited_log import LimitedLog
from engine.errors import DiskFullError, PartlyWrittenError
from engine.link.codes import UNAVAILABLE
from engine.link.timer import Timer
from engine.log.format import CODE_DUPLICATE, CODE_NO_ROOM, CODE_OK
from engine.timers import loops
from engine.timers.counts import TimerCounts
from engine.timers.gather import Gathered
from engine.timers.native import gather
from engine.timers.table import TimerEntry
from engine.timers.timer_store import TimerStore, append_or_nothing
from engine.timers.tombstones import Address, Tombstones

log = logging.getLogger("penstock.engine")
limited = LimitedLog(log)

STEP_TIMERS, STEP_BYTES = 1000, 512 << 10
"""Timers and bytes per step: a few milliseconds of work."""

SCAN_CELLS = 50_000

UNREAD_MS_MIN, UNREAD_MS_MAX = 4_000, 60_000
"""Delay of timers that could not be read, doubled while their segment fails; nothing else waits for them."""


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
        self._owed: list[tuple[list[Address], Timer]] = []
        """Next rounds that a full disk refused, each with the address of the round before, and of its copy.

        The earlier round is not marked until the next one is stored.
        """
        self._unread: dict[int, tuple[int, int]] = {}
        """By segment whose last read failed: the delay in ms, and the time from which another error doubles it."""

    def step(self, now_ms: int) -> int:
        """Fire some due timers; returns how many left the table.

        Raises PartlyWrittenError, then only a restart can tell which were stored. After any other error, DiskFullError
        among them, timers that were not stored are pending again.
        """
        self.append_rounds({})
        entries = self._store.table.pop_due(now_ms, self._limit)
        if not entries:
            return 0
        self._turn += 1
        try:
            self._tombstones.will_fire()
            gathered = gather(self._store.log, entries, self._bytes_max, self._turn)
        except BaseException:
            self._give_back(entries)
            raise
        self._give_back(entries[gathered.taken :])
        self._limit = max(1, min(STEP_TIMERS, self._bytes_max * gathered.taken // max(gathered.size, 1)))
        self._set_aside(entries, gathered, now_ms)
        self._append(entries, gathered, now_ms)
        return gathered.taken

    def _give_back(self, entries: Iterable[TimerEntry]) -> None:
        for entry in entries:
            self._store.put_back(*entry)

    def _set_aside(self, entries: list[TimerEntry], gathered: Gathered, now_ms: int) -> None:
        """Drop timers with damaged records; postpone unreadable ones."""
        for number in gathered.damaged:
            self._lose(entries[number], "its record fails verification")
        if gathered.unread or self._unread:
            self._back_off(entries, gathered, now_ms)
        for number in gathered.unread:
            base, at, due_ms, hashed = entries[number]
            limited.error(
                "position=%d: delayed message, due at %d ms: postponed: its record cannot be read now",
                base + at,
                due_ms,
            )
            self._store.put_back(base, at, now_ms + self._unread[base][0], hashed)

    def _back_off(self, entries: list[TimerEntry], gathered: Gathered, now_ms: int) -> None:
        before, self._unread = self._unread, dict(self._unread)
        for entry in entries[: gathered.taken]:
            self._unread.pop(entry[0], None)
        for base in {entries[number][0] for number in gathered.unread}:
            delay, until_ms = before.get(base, (UNREAD_MS_MIN // 2, 0))
            if now_ms >= until_ms:
                delay = min(2 * delay, UNREAD_MS_MAX)
                until_ms = now_ms + delay
            self._unread[base] = delay, until_ms

    def lose_all(self, base: int) -> None:
        """Drop the timers that are pending in a deleted segment."""
        start = 0
        while start >= 0:
            entries, start = self._store.table.scan(start, SCAN_CELLS, base)
            for base_of, at, due_ms, hashed in entries:
                self._store.table.remove(base_of, at, hashed)
                self._counts.lost += 1
                limited.error(
                    "position=%d: delayed message, due at %d ms: lost: its segment was deleted", base + at, due_ms
                )

    def _lose(self, entry: TimerEntry, cause: str) -> None:
        base, at, due_ms, _ = entry
        self._counts.lost += 1
        limited.error("position=%d: delayed message, due at %d ms: lost: %s", base + at, due_ms, cause)
        self._tombstones.fired([(base, at)])

    def _append(self, entries: list[TimerEntry], gathered: Gathered, now_ms: int) -> None:
        if not gathered.groups:
            return
        try:
            results = append_or_nothing(self._store.log, gathered.batches, len(gathered.groups))
        except PartlyWrittenError:
            raise
        except BaseException:
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
            elif code in (CODE_NO_ROOM, UNAVAILABLE):
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
                self._owed.append((self._tombstones.take_copies([(base, at)]), following))
                self._store.announce(following)
        self._tombstones.fired(ended)
        if not self._owed:
            return
        addresses = self._store.append([timer.pack() for _, timer in self._owed])
        stored, self._owed = self._owed[: len(addresses)], self._owed[len(addresses) :]
        for address, (_, timer) in zip(addresses, stored, strict=True):
            self._store.enter(address, timer)
        self._tombstones.fired([each for before, _ in stored for each in before])
        if self._owed:
            raise DiskFullError("no space for the next rounds of loops")
