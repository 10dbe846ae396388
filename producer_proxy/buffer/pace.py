"""The pace of a drain beside live traffic: size of the next batch, and pause before it. Pure: the time is passed in.

The rate follows additive increase, multiplicative decrease over the lateness of the drain's own wake-ups: when the loop
wakes the drain later than asked, live calls have waited as long. The rate starts at its minimum and never falls below
it, because the keys of a backlog stay diverted.
"""

PER_S = 20_000
BATCH_MIN, BATCH_MAX = 16, 200
"""Bounds of a batch. No call runs while a batch is handled, so it has only as many entries as the rate needs.

A crash repeats at most BATCH_MAX entries.
"""
LATE_S = 0.005
SLOWER, FASTER = 0.9, 0.002
"""Factor of a decrease and share of an increase: the rate falls while more than some 3 % of the turns are late."""
# A backlog of ten minutes at 1,000/s is drained within one minute at the default rate, beside 1,000/s of new entries.
SHARE_MIN = 0.6
BEHIND_S_MAX = 0.02
YIELD_S = 0.0005
SMOOTHING = 0.1
TURN_S_MAX = 0.05  # a longer turn waited for an absent engine and does not predict the next one


class Pace:
    """Rate control of one drain.

    Args:
        per_s_max: entries per second, at most.
    Attributes:
        per_s: the current target rate.
    Invariant: SHARE_MIN · per_s_max ≤ per_s ≤ per_s_max.
    """

    def __init__(self, per_s_max: int) -> None:
        self._per_s_max = per_s_max
        self.per_s = SHARE_MIN * per_s_max
        self._due_s = 0.0
        self._batch_s = self._late_s = 0.0  # smoothed durations

    @property
    def batch(self) -> int:
        """Size of the next batch: the entries due until the batch after it can begin, plus a quarter to catch up."""
        turn_s = self._batch_s + YIELD_S + self._late_s
        return max(BATCH_MIN, min(BATCH_MAX, int(1.25 * self.per_s * turn_s)))

    def drained(self, count: int, took_s: float, now_s: float) -> float:
        """Record a batch of `count` entries; return the pause before the next.

        The drain catches up at most BEHIND_S_MAX of delay.
        """
        self._batch_s += SMOOTHING * (min(took_s, TURN_S_MAX) - self._batch_s)
        self._due_s = max(self._due_s, now_s - took_s - BEHIND_S_MAX) + count / self.per_s
        return max(YIELD_S, self._due_s - now_s)

    def woke(self, late_s: float) -> None:
        """Record that the loop woke the drain `late_s` later than asked."""
        self._late_s += SMOOTHING * (min(late_s, TURN_S_MAX) - self._late_s)
        if late_s > LATE_S:
            self.per_s = max(SHARE_MIN * self._per_s_max, self.per_s * SLOWER)
        else:
            self.per_s = min(self._per_s_max, self.per_s + FASTER * self._per_s_max)
