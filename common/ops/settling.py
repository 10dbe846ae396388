"""Before a proxy says that it serves: give its links a moment, so that whoever waited for the word is not refused first."""

import time
from collections.abc import Callable, Mapping
from typing import Protocol

POLL_S = 0.005


class Event(Protocol):
    def wait(self, timeout: float | None = None) -> bool: ...


def settle(health: Callable[[], Mapping[str, bool | str]], asked: Event, deadline_s: float = 2.0) -> bool:
    """Block until all of `health()` is True, or the deadline has passed, or a stop is asked for; True when all is well.

    A proxy whose engine is away serves all the same after the deadline: its answers say what is wrong.
    """
    end = time.monotonic() + deadline_s
    while not all(value is True for value in health().values()):
        if asked.wait(POLL_S) or time.monotonic() > end:
            return False
    return True
