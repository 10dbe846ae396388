"""The rate limit of a group, applied to a pull: its budget, or how long it waits.

The number of messages of a pull is not known before its answer. So the pull is limited to what the meter has left, and
the meter is charged afterwards. Pulls that are answered at the same time may overdraw the meter; later ones wait until
that is paid.
"""

import math
from typing import NamedTuple

from common.limits import Meter

HOLD_S = 0.1
"""As in the producer proxy: the longest hold before a refusal."""


class PullBudget(NamedTuple):
    """Limits of one pull's deliveries."""

    messages: int
    bytes: int


class HoldFor(NamedTuple):
    """Ask again after so many seconds."""

    seconds: float


class RateLimited(NamedTuple):
    """No deliveries now."""

    retry_after_ms: int
    sentence: str = "over the rate limit of the group; nothing was delivered"


def check_rate(meter: Meter, wanted: PullBudget, now: float, *, may_hold: bool) -> PullBudget | HoldFor | RateLimited:
    """Check a pull against its group's rate limit. `may_hold`: true for the first check of a pull only."""
    wait_s = meter.wait_s(1, 1, now)
    if not wait_s:
        messages, size = meter.room(now)
        return PullBudget(int(min(wanted.messages, messages)), int(min(wanted.bytes, size)))
    if may_hold and wait_s <= HOLD_S:
        return HoldFor(wait_s)
    meter.refuse(1, 1)
    return RateLimited(math.ceil(wait_s * 1000))
