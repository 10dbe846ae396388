"""Waiting for what another thread or process will do."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, deadline_s: float = 10.0) -> T:
    """Return the first true value of `condition()`; fail the test with `what` after the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"waited {deadline_s} s in vain: {what}"
        time.sleep(0.005)


def until_done(left: Callable[[], int], what: str, stall_s_max: float = 30.0) -> None:
    """Return when `left()` is 0; fail the test with `what` when it has not become smaller for so long."""
    least, end = left(), time.monotonic() + stall_s_max
    while least:
        now = left()
        if now < least:
            least, end = now, time.monotonic() + stall_s_max
        assert time.monotonic() < end, f"no progress in {stall_s_max} s, {now} are left: {what}"
        time.sleep(0.005)
