"""Shrinking: the smallest scenario that still breaks a promise of the same kind."""

from collections.abc import Callable
from typing import Any, TypeVar

from tests.sim.kinds import kind_of

TRIES_MAX = 200
Found = TypeVar("Found", bound=Any)


def shrink(outcome: Found, run: Callable[[Any], Found]) -> Found:
    """Leave out faults and clients, and shorten the run, as long as it still fails.

    Args:
        run: runs a scenario, which has `smaller()`.
    """
    tries = TRIES_MAX
    best = outcome
    progress = True
    while progress and tries > 0:
        progress = False
        for smaller in best.scenario.smaller():
            tries -= 1
            found = run(smaller)
            if kind_of(found.broken) == kind_of(outcome.broken):
                best, progress = found, True
                break
            if tries <= 0:
                break
    return best
