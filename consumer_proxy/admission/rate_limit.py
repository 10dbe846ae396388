"""A group's rate limit, applied to a pull: its budget, or its waiting time.

The number of messages of a pull is not known before its answer. So the pull is limited to what the meter has left, and
the meter is charged afterwards. Concurrent pulls may overdraw the meter; later ones wait until it
has recovered.
"""

import math
from typing import NamedTuple

from common.limits import Meter

HOLD_S = 0.1
"""The longest hold before a refusal, as in the producer proxy."""


class PullBudget(NamedTuple):
    """Limits of one pull's deliveries."""

    messages: int
    bytes: int


class HoldFor(NamedTuple):
    """Hold the pull for this time, then check it again."""

    seconds: float


class RateLimited(NamedTuple):
    """Answer the pull without deliveries."""

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
