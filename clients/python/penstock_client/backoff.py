"""Exponential back-off with jitter.

Each pause is a random point in the upper half of a doubling bound, so that clients spread out.
"""

import random


def backoff_s(failures: int, first_ms: int, max_ms: int, chance: float | None = None) -> float:
    """The pause after the n-th failure in a row, n from 1; `chance` in 0..1 is drawn unless given."""
    pause_ms = min(max_ms, first_ms * 2 ** min(failures - 1, 30))
    return pause_ms * (0.5 + (random.random() if chance is None else chance) / 2) / 1000
