"""A group's rate limit, applied to a pull: its budget, or its waiting time.

The number of messages of a pull is not known before its answer, and a pull may wait for half a minute. So pulls that are
open at the same time share what the meter has left, and each is charged before its reply leaves: a reply that comes
before its tokens is held for them, for DELAY_S_MAX at most. Above that its messages are given back, which is no attempt,
and the pull is refused.
"""

import math
from typing import Any, NamedTuple

from common.limits import Meter
from common.limits.retry_slot import HOLD_S, RetrySlot, wait_of

DELAY_S_MAX = 1.0
"""Longest time for which a reply is held; its messages are leased meanwhile. The bucket holds as much: a single pull never
waits for longer."""


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
        return _limited(slot, now)
    return promised(meter, now)


def promised(meter: Meter, now: float) -> RateLimited:
    """Refuse a pull, with a new slot."""
    return _limited(RetrySlot(now + meter.promise(1, 1, now), (meter,)), now)


def _limited(slot: RetrySlot, now: float) -> RateLimited:
    return RateLimited(slot, max(1, math.ceil((slot.at - now) * 1000)))


class RatedPulls:
    """The pulls that are open at each meter."""

    def __init__(self) -> None:
        self._open: dict[Meter, int] = {}

    def share(self, meter: Meter, budget: PullBudget) -> PullBudget:
        """The part of what the meter has left for one more pull."""
        pulls = 1 + self._open.get(meter, 0)
        return PullBudget(max(1, budget.messages // pulls), max(1, budget.bytes // pulls))

    def began(self, pull: Any, meter: Meter) -> None:
        """An OpenPull is open at this meter, until `ended`."""
        pull.meter = meter
        self._open[meter] = self._open.get(meter, 0) + 1

    def ended(self, pull: Any) -> None:
        """The source has answered."""
        if pull.meter is not None and (left := self._open.pop(pull.meter) - 1):
            self._open[pull.meter] = left

    @staticmethod
    def charge(meter: Meter, messages: int, size: int, now: float) -> float | RateLimited:
        """Take what a reply delivers; returns for how long it is held. RateLimited: for too long, and nothing is taken."""
        wait_s = meter.wait_s(messages, size, now)
        if wait_s > DELAY_S_MAX:
            return promised(meter, now)
        meter.take(messages, size)
        return wait_s
