"""The slot of a rejected caller: when its tokens come, kept with the caller's connection.

A connection holds at most one slot, so slots need no memory beyond the connections'.
"""

from collections.abc import Collection

from common.limits import Meter

HOLD_S = 0.1
"""The longest hold before a rejection. More smooths bursts of callers that do not retry, and keeps more of them waiting."""
EARLY_S = 0.005
"""A caller may be this much before its slot: clocks of loops stand for as long as a callback takes."""
LATE_S = 1.0
"""Time for which a slot waits for its caller."""


class RetrySlot:
    """
    Attributes:
        at: its time, in seconds of the meters' clock.
        meters: the limits that promised it.
    """

    __slots__ = ("at", "meters")

    def __init__(self, at: float, meters: Collection[Meter]) -> None:
        self.at, self.meters = at, meters

    def is_ahead(self, now: float) -> bool:
        """Whether the caller came too early. It keeps its slot."""
        return now < self.at - EARLY_S

    def is_due(self, meter: Meter, now: float) -> bool:
        """Whether this limit serves the caller before those that come without a slot."""
        return -EARLY_S <= now - self.at <= LATE_S and meter in self.meters


def wait_of(meter: Meter, messages: float, size: float, now: float, slot: RetrySlot | None) -> float:
    """Seconds until a caller with this slot, or without one, may take the amount if no other caller takes any."""
    if slot is not None and slot.is_due(meter, now):
        return meter.wait_s(messages, size, now)
    return meter.slot_s(messages, size, now)
