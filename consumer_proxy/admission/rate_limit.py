"""A group's rate limit, applied to a pull: its budget, or its waiting time.

The number of messages of a pull is not known before its answer. So the pull is limited to what the meter has left, and
the meter is charged afterwards. Concurrent pulls may overdraw the meter; later ones wait until it
has recovered.
"""

import math
from typing import NamedTuple

from common.limits import Meter
from common.limits.retry_slot import HOLD_S, RetrySlot, wait_of


class PullBudget(NamedTuple):
    """Limits of one pull's deliveries."""

    messages: int
    bytes: int


class HoldFor(NamedTuple):
    """Hold the pull for this time, then check it again."""

    seconds: float


class RateLimited(NamedTuple):
    """Answer the pull without deliveries, and give its connection this slot."""

    slot: RetrySlot
    retry_after_ms: int
    sentence: str = "over the rate limit of the group; nothing was delivered"


def check_rate(
    meter: Meter, wanted: PullBudget, now: float, slot: RetrySlot | None, *, may_hold: bool
) -> PullBudget | HoldFor | RateLimited:
    """Check a pull against its group's rate limit.

    Args:
        slot: the slot that the connection was given; None: it has none.
        may_hold: true for the first check of a pull only.
    """
    wait_s = wait_of(meter, 1, 1, now, slot) if may_hold else meter.wait_s(1, 1, now)
    if not wait_s:
        messages, size = meter.room(now)
        return PullBudget(int(min(wanted.messages, messages)), int(min(wanted.bytes, size)))
    if may_hold and wait_s <= HOLD_S:
        return HoldFor(wait_s)
    if slot is not None and slot.is_ahead(now) and meter in slot.meters:
        meter.refuse(1, 1)
    else:
        slot = RetrySlot(now + meter.promise(1, 1, now), (meter,))
    return RateLimited(slot, max(1, math.ceil((slot.at - now) * 1000)))
