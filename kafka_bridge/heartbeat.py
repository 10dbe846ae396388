"""Whether a loop goes on: one that waits without an end for Kafka or the engine must not look healthy."""

import time
from collections.abc import Callable
from typing import NamedTuple

ALLOWED_S = 15.0


class _Beat(NamedTuple):
    at_s: float
    waits_for: str
    allowed_s: float


class Heartbeat:
    """Beats in the loop's thread; any thread may look."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._last: _Beat | None = None

    def beat(self, waits_for: str = "an answer of Kafka or of the engine", allowed_s: float = ALLOWED_S) -> None:
        """The loop goes on now.

        Args:
            waits_for: what can keep it from the next beat.
            allowed_s: how long that may take before it is told.
        """
        self._last = _Beat(self._now_s(), waits_for, allowed_s)

    def rest(self) -> None:
        """The loop has nothing to do."""
        self._last = None

    @property
    def silent_s(self) -> float:
        """Seconds since the last beat; 0 while it rests."""
        last = self._last
        return 0.0 if last is None else self._now_s() - last.at_s

    @property
    def fault(self) -> str:
        """A sentence about what it waits for and since when; empty: it works, or has nothing to do."""
        last = self._last
        if last is None or (silent_s := self._now_s() - last.at_s) < last.allowed_s:
            return ""
        return f"nothing has moved for {silent_s:.0f} s: it waits for {last.waits_for}"
