"""Marks: records in the log that say which timers have ended.

What has fired is marked only once it is durable, so a mark never speaks of a message that a power cut could take back. Until then the
fired batch itself is the proof, which recovery finds.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engine.errors import DiskFullError
from engine.log.timer_log import TimerLog
from engine.timers.timer_store import Place

MARK_TIMERS_MAX = 1000
"""So that a mark is one batch."""

ENDED_MAX = MARK_TIMERS_MAX // 2
"""Timers that are kept together; a copy of each may come to them."""

PAUSE_MS = 50
"""Between two marks, and before the sync that one waits for: few records and syncs, each of many timers."""

Address = tuple[int, int]
"""(base of the segment, byte address) of a timer's record."""


class Ended(NamedTuple):
    """Timers that have fired together, with their copies; their messages lie between the two positions."""

    start: int
    end: int
    places: list[Address]


class Marks:
    """Timers that have ended and are not marked yet, in the order in which they did."""

    copies: dict[Address, Place]
    """Of timers that are being carried on at this moment: who ends one ends its copy too, with the same mark."""

    def __init__(self, log: TimerLog) -> None:
        self._log = log
        self._later: deque[Ended] = deque()
        self._started_at = 0
        self._durable_to = self._asked_to = self._written_ms = 0
        self.copies = {}

    def __len__(self) -> int:
        return len(self._later)

    def holds(self, base: int) -> bool:
        """Whether some of them are of that segment."""
        return any(place[0] == base for ended in self._later for place in ended.places)

    def will_fire(self, start: int | None = None) -> None:
        """Timers are about to be appended, or recovery has found such from `start` on."""
        self._started_at = self._log.end_position if start is None else start
        if not self._later:
            self._log.put_fired_from(self._started_at)

    def fired(self, places: Sequence[Address]) -> None:
        """These have fired since `will_fire()`; mark them once the log's present end is durable."""
        end = self._log.end_position
        for first in range(0, len(places), ENDED_MAX):
            self._later.append(Ended(self._started_at, end, self._with_copies(places[first : first + ENDED_MAX])))

    def waiting(self) -> dict[int, Address]:
        """Position to address of those that have no mark yet."""
        return {base + at: (base, at) for ended in self._later for base, at in ended.places}

    def end_now(self, places: Sequence[Address]) -> None:
        """Mark what was cancelled. Raises DiskFullError; then it has not ended."""
        self._mark(self._with_copies(places), 0)

    def carried(self, places: list[Place]) -> None:
        """Their copies are durable and have taken over."""
        for place in places:
            self.copies.pop(place)
        try:
            self._mark(places, 0)
        except DiskFullError:
            self.fired(places)

    def ended(self, places: list[Place]) -> None:
        """Recovery knows that these have ended. Raises DiskFullError."""
        for start in range(0, len(places), MARK_TIMERS_MAX):
            self._mark(places[start : start + MARK_TIMERS_MAX], 0)

    def is_due(self, now_ms: int) -> bool:
        """Whether `write()` is worth a call now."""
        return bool(self._later) and not 0 <= now_ms - self._written_ms < PAUSE_MS

    def write(self, now_ms: int) -> set[int]:
        """Mark what is durable, as far as one mark holds it; returns the segments concerned. Asks for a sync when nothing is.

        Raises DiskFullError.
        """
        self._written_ms = now_ms
        taken: list[Ended] = []
        count = 0
        while self._later and self._later[0].end <= self._durable_to:
            count += len(self._later[0].places)
            if taken and count > MARK_TIMERS_MAX:
                self._written_ms = 0  # more can be marked at once
                break
            taken.append(self._later.popleft())
        if not taken:
            self._ask()
            return set()
        # Of what the last one's append has written some may be left for the next mark.
        covered_to = taken[-1].end if not self._later or self._later[0].end > taken[-1].end else 0
        places = [place for ended in taken for place in ended.places]
        try:
            self._mark(places, covered_to)
        except DiskFullError:
            self._later.extendleft(reversed(taken))
            raise
        self._log.put_fired_from(self._later[0].start if self._later else None)
        return {base for base, _ in places}

    def _with_copies(self, places: Sequence[Address]) -> list[Address]:
        return (
            [*places, *(self.copies[place] for place in places if place in self.copies)] if self.copies else [*places]
        )

    def _mark(self, places: Iterable[Address], covered_to: int) -> None:
        ended: dict[int, list[int]] = {}
        for base, at in places:
            ended.setdefault(base, []).append(at)
        self._log.mark(ended, covered_to)

    def _ask(self) -> None:
        if self._later and self._asked_to <= self._durable_to:
            self._asked_to = self._later[-1].end
            self._log.when_durable(self._asked_to, self._synced)

    def _synced(self) -> None:
        self._durable_to = max(self._durable_to, self._asked_to)
