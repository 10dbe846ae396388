"""The attempts of one call: what is tried again and when, until the deadline."""

import random
import time

from common.contract import Code
from pipeline.errors import CallRefused

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 2.0
CODES_TRIED_AGAIN_FROM = 200
CODES_TRIED_AGAIN_TO = 500


def code_name(code: int) -> str:
    """The contract's name of a code, or its number where it is newer than this program."""
    return Code._VALUES_TO_NAMES.get(code, str(code))


def is_tried_again(code: int) -> bool:
    """Whether a call with this code may succeed later: 2xx, 3xx and 4xx."""
    return CODES_TRIED_AGAIN_FROM <= code < CODES_TRIED_AGAIN_TO


class CallAttempts:
    """One call with all its attempts. `what` names the call in errors."""

    def __init__(self, what: str, deadline_s: float) -> None:
        self._what = what
        self._seconds = deadline_s
        self._until_s = time.monotonic() + deadline_s
        self._failures = 0

    def pause(self, reason: str, retry_after_ms: int | None = None) -> None:
        """Block until the next attempt: after what the proxy told, or a growing back-off. Raises CallRefused past the deadline."""
        self._failures += 1
        back_off_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(self._failures - 1, 10)) * random.uniform(0.5, 1)
        pause_s = max(back_off_s, (retry_after_ms or 0) / 1000)
        if time.monotonic() + pause_s > self._until_s:
            raise CallRefused(f"{self._what}: {reason}: no success in {self._seconds:g} s")
        time.sleep(pause_s)

    def succeeded(self) -> None:
        """Start the deadline anew: a part of the call's work is done."""
        self._failures = 0
        self._until_s = time.monotonic() + self._seconds
