"""A short wait for a proxy's links before it reports that it serves, so that the first calls are not rejected."""

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from common.readiness import is_ready

POLL_S = 0.005


class Event(Protocol):
    def wait(self, timeout: float | None = None) -> bool: ...


def settle(health: Callable[[], Mapping[str, bool | str]], asked: Event, deadline_s: float = 2.0) -> bool:
    """Block until all of `health()` is True, the deadline has passed, or a stop is requested; True when all is ready.

    A proxy without an engine serves after the deadline too: its answers report the reason.
    """
    end = time.monotonic() + deadline_s
    while not all(is_ready(value) for value in health().values()):
        if asked.wait(POLL_S) or time.monotonic() > end:
            return False
    return True
