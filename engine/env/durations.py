# cython: annotation_typing=False
"""Durations counted by bounds: a histogram of the page of metrics. One observation costs two reads of the clock."""

from engine.env.clock import NodeClock

FIRST_NS = 62_500
BOUNDS = 15
"""Bounds double from FIRST_NS on, to 1.024 s. Longer durations are counted above them."""
BOUNDS_S = tuple(FIRST_NS * 2**number / 1e9 for number in range(BOUNDS))


class Durations:
    """How often something took how long.

    Attributes:
        counts: by bound: durations up to it that are above the bound before. The last one counts those above all bounds.
        total_ns: sum of all durations.
    """

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * (BOUNDS + 1)
        self.total_ns = 0

    def since(self, clock: NodeClock, began_ns: int, count: int) -> None:
        """Count so many durations from `began_ns` of the monotonic clock until now."""
        self.add(clock.monotonic_ns() - began_ns, count)

    def add(self, duration_ns: int, count: int) -> None:
        """Count so many durations of this length."""
        bucket, bound_ns = 0, FIRST_NS
        while duration_ns > bound_ns and bucket < BOUNDS:
            bound_ns *= 2
            bucket += 1
        self.counts[bucket] += count
        self.total_ns += duration_ns * count
