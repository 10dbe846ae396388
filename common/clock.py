"""Clocks as an interface, so that tests can set the time."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Unix time in milliseconds. It may step back: never measure a duration with it."""
        ...

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start; never steps back."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


class FakeClock:
    """A clock that only a test advances."""

    def __init__(self, now_ms: int = 1_700_000_000_000):
        self._now_ms = now_ms
        self._monotonic_s = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, ms: int) -> None:
        """Advance both clocks."""
        self._now_ms += ms
        self._monotonic_s += ms / 1000

    def step(self, ms: int) -> None:
        """Step the wall clock by `ms`, forward or back, without advancing the monotonic one."""
        self._now_ms += ms
