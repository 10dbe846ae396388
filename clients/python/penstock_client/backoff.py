"""Exponential back-off with jitter.

Each pause is a random point in the upper half of a doubling bound, so that clients spread out.
"""

import random

from penstock_client.contract import Code


def pause_s(code: int, retry_after_ms: int | None, back_off_s: float) -> float:
    """The pause after a refusal: what the proxy told or the back-off, whichever is longer. At a rate limit the proxy
    has promised a slot, which a longer pause would miss."""
    told_s = (retry_after_ms or 0) / 1000
    return told_s if told_s and code == Code.RATE_LIMITED else max(told_s, back_off_s)


def backoff_s(failures: int, first_ms: int, max_ms: int, chance: float | None = None) -> float:
    """The pause after the n-th failure in a row, n from 1; `chance` in 0..1 is drawn unless given."""
    pause_ms = min(max_ms, first_ms * 2 ** min(failures - 1, 30))
    return pause_ms * (0.5 + (random.random() if chance is None else chance) / 2) / 1000
