"""A pull at its group's rate limit: how much it may bring, or for how long it has to wait.

How many messages a pull will bring is not known before it is answered. So it is cut to what the limit has left, and what it
brought is taken afterwards; pulls that are answered at the same time can overdraw the limit, and later ones wait until that is paid.
"""

import math
from typing import NamedTuple

from common.limits import Meter

HOLD_S = 0.1
"""As in the producer proxy: the longest hold before a refusal."""


class Most(NamedTuple):
    """What a pull may bring."""

    messages: int
    bytes: int


class Held(NamedTuple):
    """Ask again after so many seconds."""

    seconds: float


class Short(NamedTuple):
    """Nothing for so long."""

    retry_after_ms: int
    sentence: str = "over the rate limit of the group; nothing was delivered"


def within(meter: Meter, wanted: Most, now: float, *, may_hold: bool) -> Most | Held | Short:
    """What becomes of a pull that wants so much; `may_hold` once a pull."""
    wait_s = meter.wait_s(1, 1, now)
    if not wait_s:
        messages, size = meter.room(now)
        return Most(int(min(wanted.messages, messages)), int(min(wanted.bytes, size)))
    if may_hold and wait_s <= HOLD_S:
        return Held(wait_s)
    meter.refuse(1, 1)
    return Short(math.ceil(wait_s * 1000))
