"""Wall time that does not follow steps ahead: for spans in which something grows old and is deleted or refused.

A wall clock may be set. A step back makes everything younger, which does no harm, and counts at once. A step ahead by S
counts only after the clock has shown it for as long as S; until then time passes as by the monotonic clock. So nothing
is deleted because of a clock that is wrong for less time than it is wrong by. Pure: both clocks are passed in.
"""

import logging
from collections.abc import Callable

from common.limited_log import LimitedLog

limited = LimitedLog(logging.getLogger(__name__))

DRIFT_MS = 60_000
"""Small steps that count at once: together at most so much, and as much again per hour."""

CHECK_MS = 1000
"""Least time between two comparisons of the clocks."""

DRIFT_REFILL = DRIFT_MS / 3_600_000


class BelievedTime:
    """The believed time. `check()` has to be called at least once per second while steps matter.

    Args:
        wall_ms, monotonic_ms: the clocks.
        believed_ms: where time continues; None: the wall clock is right now.
        waited_ms: how long the step that is there already has been waited for.
        name: of the process or part, for the log.

    Attributes:
        ahead_ms: by how much the wall clock is ahead of the believed time; 0 without a step.
        waited_ms: how long it has been so.
    """

    def __init__(
        self, wall_ms: Callable[[], int], monotonic_ms: Callable[[], int], *,
        believed_ms: int | None = None, waited_ms: int = 0, name: str = "clock",
    ) -> None:  # fmt: skip
        self._wall_ms, self._monotonic_ms, self._name = wall_ms, monotonic_ms, name
        self._checked_ms = monotonic_ms()
        self._believed_ms = wall_ms() if believed_ms is None else believed_ms
        self._drift_ms = float(DRIFT_MS)
        self.ahead_ms, self.waited_ms = 0, 0
        self._take(wall_ms() - self._believed_ms)
        if self.ahead_ms:
            self.waited_ms = waited_ms

    def now_ms(self) -> int:
        """Unix time in milliseconds, never after the wall clock."""
        return min(self._wall_ms(), self._believed_ms + self._monotonic_ms() - self._checked_ms)

    def checked_ms(self) -> int:
        """As `now_ms()`, for a user that has no other occasion for `check()`."""
        self.check()
        return self.now_ms()

    def check(self) -> bool:
        """Compare the clocks. Returns whether a step began or ended to count, or another one came."""
        now_ms = self._monotonic_ms()
        passed_ms = now_ms - self._checked_ms
        if passed_ms < CHECK_MS:
            return False  # the clocks' last digits differ, and that is no drift
        self._checked_ms = now_ms
        self._believed_ms += passed_ms
        self._drift_ms = min(DRIFT_MS, self._drift_ms + passed_ms * DRIFT_REFILL)
        if self.ahead_ms:
            self.waited_ms += passed_ms
        before_ms = self.ahead_ms
        self._take(self._wall_ms() - self._believed_ms)
        if bool(before_ms) != bool(self.ahead_ms) or abs(self.ahead_ms - before_ms) > DRIFT_MS:
            self._tell(before_ms)
            return True
        return False

    def accept(self) -> None:
        """Believe the wall clock as it is: an operator says that it is right."""
        self._believe()

    def reach(self, ms: int) -> None:
        """At least this time is there: another clock has shown it, whose steps were waited for."""
        if ms > self.now_ms():
            self._believed_ms, self._checked_ms = ms, self._monotonic_ms()
            self.ahead_ms = self.waited_ms = 0
            self._take(self._wall_ms() - ms)

    @property
    def remaining_ms(self) -> int:
        """After how much time the step counts; 0 without one."""
        return max(0, self.ahead_ms - self.waited_ms)

    @property
    def sentence(self) -> str:
        """The state in words; empty without a step."""
        if not self.ahead_ms:
            return ""
        return (
            f"the wall clock is {self.ahead_ms / 1000:,.0f} s ahead of the time that has passed; it counts in "
            f"{self.remaining_ms / 1000:,.0f} s if it stays so"
        )

    def _take(self, ahead_ms: int) -> None:
        if ahead_ms <= 0:
            self._believe()
        elif ahead_ms <= self._drift_ms:
            self._drift_ms -= ahead_ms
            self._believe()
        elif not self.ahead_ms or abs(ahead_ms - self.ahead_ms) > DRIFT_MS:
            self.ahead_ms, self.waited_ms = ahead_ms, 0
        elif self.waited_ms >= ahead_ms:
            self._believe()
        else:
            self.ahead_ms = ahead_ms

    def _believe(self) -> None:
        self._believed_ms, self._checked_ms = self._wall_ms(), self._monotonic_ms()
        self.ahead_ms = self.waited_ms = 0

    def _tell(self, before_ms: int) -> None:
        if self.ahead_ms:
            limited.warning("%s: %s", self._name, self.sentence, about=self._name)
        else:
            limited.warning("%s: the wall clock counts again, after %.0f s", self._name, before_ms / 1000)
