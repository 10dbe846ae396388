"""How fast a store is drained beside live traffic: how many entries a batch, and when the next one. Pure: it is told what time it is.

The rate is additive increase, multiplicative decrease over the lateness of the drain's own wake-ups: when the loop turns to the drain
later than asked, live calls have waited as long. It begins low, and is never lower: a backlog that stays is a harm as well, as its keys
stay diverted.
"""

PER_S = 20_000
BATCH_MIN, BATCH_MAX = 16, 200
"""Handling a batch is a stretch of the loop's time that no call gets, so it has no more entries than the rate needs. BATCH_MAX is also
what a crash repeats at the most."""
LATE_S = 0.005
SLOWER, FASTER = 0.9, 0.002
"""Together: the rate falls while more than some 3 % of the turns are late."""
SHARE_MIN = 0.6  # of the default rate: ten minutes at 1,000/s are drained within one, with 1,000/s joining them
BEHIND_S_MAX = 0.02
YIELD_S = 0.0005
SMOOTHING = 0.1
TURN_S_MAX = 0.05  # one that waited for an engine that was away says nothing about the next


class Pace:
    """
    Args:
        per_s_max: entries a second, at most.
    Attributes:
        per_s: what it aims at now.
    Invariant: SHARE_MIN · per_s_max ≤ per_s ≤ per_s_max.
    """

    def __init__(self, per_s_max: int) -> None:
        self._per_s_max = per_s_max
        self.per_s = SHARE_MIN * per_s_max
        self._due_s = 0.0
        self._batch_s = self._late_s = 0.0  # what each takes, smoothed

    @property
    def batch(self) -> int:
        """Entries of the next one: what comes due until the one after it can begin, and a quarter more to make up for delays."""
        turn_s = self._batch_s + YIELD_S + self._late_s
        return max(BATCH_MIN, min(BATCH_MAX, int(1.25 * self.per_s * turn_s)))

    def drained(self, count: int, took_s: float, now_s: float) -> float:
        """A batch of `count` is done; for how long to leave the loop alone. No more than a moment's delay is made up for."""
        self._batch_s += SMOOTHING * (min(took_s, TURN_S_MAX) - self._batch_s)
        self._due_s = max(self._due_s, now_s - took_s - BEHIND_S_MAX) + count / self.per_s
        return max(YIELD_S, self._due_s - now_s)

    def woke(self, late_s: float) -> None:
        """The loop turned to the drain so much later than it had asked for."""
        self._late_s += SMOOTHING * (min(late_s, TURN_S_MAX) - self._late_s)
        if late_s > LATE_S:
            self.per_s = max(SHARE_MIN * self._per_s_max, self.per_s * SLOWER)
        else:
            self.per_s = min(self._per_s_max, self.per_s + FASTER * self._per_s_max)
