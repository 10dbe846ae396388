"""Rates of counters between two looks, and quantiles of histograms."""

from collections.abc import Hashable, Sequence

INFINITY = float("inf")


class CounterRates:
    """The last value of each counter. One that falls has begun anew, as after a restart: it counts from 0.

    Args:
        kept_s: a counter that was not looked at for so long is forgotten.
    """

    def __init__(self, kept_s: float = 7_200.0) -> None:
        self._kept_s = kept_s
        self._last: dict[Hashable, tuple[float, float]] = {}

    def rate(self, counter: Hashable, value: float, at_s: float, *, may_fall: bool = True) -> float | None:
        """The growth per second since the last look; None at the first one.

        Args:
            may_fall: False: a value that falls was moved back by a person, and its rate is 0.
        """
        before = self._last.get(counter)
        self._last[counter] = (value, at_s)
        if before is None or at_s <= before[1]:
            return None
        growth = value - before[0]
        if growth < 0:
            growth = value if may_fall else 0.0
        return growth / (at_s - before[1])

    def knows(self, counter: Hashable) -> bool:
        """Whether it was looked at."""
        return counter in self._last

    def forget_old(self, now_s: float) -> None:
        """Drop the counters that are gone."""
        self._last = {name: each for name, each in self._last.items() if now_s - each[1] <= self._kept_s}

    def __len__(self) -> int:
        return len(self._last)


def quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    """A quantile of a histogram, linear within a bucket; None: it has no observation.

    Args:
        buckets: upper bound and count of observations up to it, by bound; the last bound is infinite.
    """
    total = buckets[-1][1] if buckets else 0.0
    if total <= 0:
        return None
    wanted, low, below = share * total, 0.0, 0.0
    for bound, count in buckets:
        if count >= wanted:
            if bound == INFINITY:
                return low
            inside = count - below
            return low + (bound - low) * ((wanted - below) / inside if inside > 0 else 1.0)
        low, below = bound, count
    return low
