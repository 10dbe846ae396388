"""Tombstones: records in the log that mark ended timers.

A fired timer is marked only once its message is durable, so a power cut cannot take back a marked message. Until then
the fired batch itself is the proof, which recovery finds.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.log.timer_log import TimerLog
from engine.timers.timer_store import TimerAddress

MARK_TIMERS_MAX = 1000
"""Maximum number of timers per tombstone record, so that it fits one batch."""

ENDED_MAX = MARK_TIMERS_MAX // 2
"""Maximum number of timers per queue entry; the copy of each timer may be added."""

PAUSE_MS = 50
"""Pause between two tombstones, and before the sync that one waits for, so that each serves many timers."""

Address = tuple[int, int]
"""(base of the segment, byte address) of a timer's record."""


class EndedTimers(NamedTuple):
    """Timers that have fired together, with their copies; their messages lie between the two positions."""

    start: int
    end: int
    addresses: list[Address]


class Tombstones:
    """Queue of ended timers without tombstone, in the order of their end."""

    copies: dict[Address, TimerAddress]
    """Copies of timers that are being relocated: the end of such a timer ends its copy with the same tombstone.

    A copy stays here until its timer has ended or is marked as relocated, also when its relocation was given up.
    """

    def __init__(self, log: TimerLog) -> None:
        self._log = log
        self._later: deque[EndedTimers] = deque()
        self._started_at = 0
        self._durable_to = self._asked_to = self._marked_to = self._written_ms = 0
        self._held_from: int | None = None
        self.copies = {}

    def __len__(self) -> int:
        return len(self._later)

    def holds(self, base: int) -> bool:
        """Whether queued timers belong to the segment, or copies in it that are not in the table yet."""
        return any(address[0] == base for ended in self._later for address in ended.addresses) or any(
            address[0] == base for address in self.copies.values()
        )

    def forget(self, base: int) -> None:
        """Forget copies in a segment that is going to be deleted: their timers are still where they were."""
        for address in [address for address, copy in self.copies.items() if copy[0] == base]:
            del self.copies[address]

    def will_fire(self, start: int | None = None) -> None:
        """Note that due timers are about to be appended, or that recovery has found such from `start` on."""
        self._started_at = self._log.end_position if start is None else start
        if not self._later:
            self._log.put_fired_from(self._started_at if self._held_from is None else self._held_from)

    def hold(self, position: int) -> None:
        """Let the next start find all batches of fired timers from `position` on, whatever is marked until then.

        For a start that could not read some records: the next one reads them, and has to tell whether they have fired.
        """
        self._held_from = position
        self._log.put_fired_from(position)

    def fired(self, addresses: Sequence[Address]) -> None:
        """Queue timers that have fired since `will_fire()`; they are marked once the log's present end is durable."""
        end = self._log.end_position
        for first in range(0, len(addresses), ENDED_MAX):
            ended = self.take_copies(addresses[first : first + ENDED_MAX])
            self._later.append(EndedTimers(self._started_at, end, ended))

    def waiting(self) -> dict[int, Address]:
        """Return position -> address of the queued timers."""
        return {base + at: (base, at) for ended in self._later for base, at in ended.addresses}

    def end_now(self, addresses: Sequence[Address]) -> None:
        """Mark cancelled timers at once. Raises DiskFullError; then they are still pending."""
        self._mark(self._with_copies(addresses), 0)
        self.take_copies(addresses)

    def relocated(self, addresses: list[TimerAddress]) -> None:
        """Mark timers whose durable copies have replaced them; when the log refuses it now, later."""
        for address in addresses:
            self.copies.pop(address)
        try:
            self._mark(addresses, 0)
        except BaseException:
            self.fired(addresses)
            raise

    def ended(self, addresses: list[TimerAddress]) -> None:
        """Mark timers that recovery has found ended. Raises DiskFullError."""
        for start in range(0, len(addresses), MARK_TIMERS_MAX):
            self._mark(addresses[start : start + MARK_TIMERS_MAX], 0)

    def is_due(self, now_ms: int) -> bool:
        """Whether `write()` has work now."""
        return bool(self._later) and not 0 <= now_ms - self._written_ms < PAUSE_MS

    def write(self, now_ms: int) -> set[int]:
        """Mark durable timers, as many as fit one tombstone; returns their segments.

        Requests a sync when none is durable.

        Raises DiskFullError.
        """
        self._written_ms = now_ms
        taken: list[EndedTimers] = []
        count = 0
        while self._later and self._later[0].end <= self._durable_to:
            count += len(self._later[0].addresses)
            if taken and count > MARK_TIMERS_MAX:
                self._written_ms = 0  # more can be marked at once
                break
            taken.append(self._later.popleft())
        if not taken:
            self._ask()
            return set()
        # The last entry's append may have fired further timers, which are left for the next tombstone.
        is_whole = not self._later or self._later[0].end > taken[-1].end
        # A power cut may keep this tombstone and lose an earlier one that is not durable yet.
        claims_all = is_whole and self._held_from is None and self._marked_to <= self._durable_to
        covered_to = taken[-1].end if claims_all else 0
        addresses = [address for ended in taken for address in ended.addresses]
        try:
            self._mark(addresses, covered_to)
        except BaseException:
            self._later.extendleft(reversed(taken))
            raise
        if self._held_from is None:
            self._log.put_fired_from(self._later[0].start if self._later else None)
        return {base for base, _ in addresses}

    def take_copies(self, addresses: Sequence[Address]) -> list[Address]:
        """Return the addresses, and those of their copies, which are forgotten here: the caller marks them."""
        found = self._with_copies(addresses)
        for address in addresses if self.copies else ():
            self.copies.pop(address, None)
        return found

    def _with_copies(self, addresses: Sequence[Address]) -> list[Address]:
        return (
            [*addresses, *(self.copies[address] for address in addresses if address in self.copies)]
            if self.copies
            else [*addresses]
        )

    def _mark(self, addresses: Iterable[Address], covered_to: int) -> None:
        ended: dict[int, list[int]] = {}
        for base, at in addresses:
            ended.setdefault(base, []).append(at)
        self._log.mark(ended, covered_to)
        self._marked_to = self._log.end_position

    def _ask(self) -> None:
        if self._later and self._asked_to <= self._durable_to:
            self._asked_to = self._later[-1].end
            self._log.when_durable(self._asked_to, self._synced)

    def _synced(self) -> None:
        self._durable_to = max(self._durable_to, self._asked_to)
