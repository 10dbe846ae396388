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
