"""Count of the events of the last one to two minutes, without a list of their times."""

import time
from collections.abc import Callable

PERIOD_S = 60.0
SHOWN = f"the last {2 * PERIOD_S:.0f} s"
"""The time that a RecentCount looks back at most, for sentences."""


class RecentCount:
    """Events of the current period of PERIOD_S and of the one before."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._since_s, self._now, self._before = monotonic_s(), 0, 0

    def add(self) -> None:
        """Note an event."""
        self._turn()
        self._now += 1

    def recent(self) -> int:
        """Number of recent events."""
        self._turn()
        return self._now + self._before

    def _turn(self) -> None:
        """Begin a new period when it is time."""
        periods = int((self._monotonic_s() - self._since_s) / PERIOD_S)
        if periods:
            self._before = self._now if periods == 1 else 0
            self._now, self._since_s = 0, self._since_s + periods * PERIOD_S
