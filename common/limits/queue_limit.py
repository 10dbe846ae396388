"""How much may wait for a target: an adaptive bound in messages. The twin of `_queue_limit`, and its description.

In the manner of the gradient limiters (Netflix' concurrency-limits): what an append took, from its first message to its answer, is held
against a bound made from what appends take when little waits. Too long: less may wait, in proportion. Short, and what may wait is used:
more. A broker that takes long for each append, whatever is in it, is told from one with a queue by the samples that are taken while
little waits. While this process itself stands still (collecting garbage, without a processor) nobody knows what the broker does: the
answer may lie there unread. Such time says nothing. Time is passed in, in seconds of a clock that never steps back.
"""

import math

QUEUE_S = 0.25
"""What an append may take at least before its queue counts as too long. More keeps a busy disk busier; less refuses earlier."""
QUEUE_S_MAX = 2.0
"""And at most, however slow the broker is: below the contract's usual deadline of 3 s."""
TOLERANCE = 4.0  # times what it takes when little waits
LIMIT_FIRST = 20_000.0
LIMIT_MIN = 32.0
LIMIT_MAX = 1_000_000.0
SHARES = (2.0, 1.0, 0.6)
"""Of the limit, by grade (high, normal, low): what may wait when a message of that grade comes. The table of docs/design/0014."""
CUT = 0.7  # at the most, for what was under way together
EASY = 0.5  # of the bound: below it the limit grows fast
STALL = 2.0  # times what an append may take: then it is silence
USED = 0.4  # of the limit; below the share of the lowest grade, or its traffic alone could never raise it
DRIFT = 0.3
LOOK_S = 0.02
"""How often `look` is called."""
STANDSTILL_S = 0.1
"""How late it has to be for a standstill of our own. More takes our own pauses for the broker's, less a busy loop for a pause."""


class QueueLimit:
    """One target's bound.

    Invariant: LIMIT_MIN ≤ limit ≤ LIMIT_MAX; a message for a target that nothing waits for is always let in, of whatever size its call.
    """

    __slots__ = ("_base_s", "_cut_at", "_looked_at", "_stood_until", "is_stalled", "limit", "queue_s")

    def __init__(self) -> None:
        self.limit = LIMIT_FIRST
        self.queue_s = QUEUE_S
        self.is_stalled = False
        self._base_s = self._cut_at = 0.0
        self._looked_at = self._stood_until = -math.inf

    @property
    def bound_s(self) -> float:
        """What an append may take now."""
        return min(max(TOLERANCE * self._base_s, self.queue_s), max(QUEUE_S_MAX, self.queue_s))

    def admits(self, waiting: int, asked: int, grade: int) -> bool:
        """Whether so many more messages of a grade may join those that wait."""
        return waiting == 0 or (not self.is_stalled and waiting + asked <= self.limit * SHARES[grade])

    def answered(self, started: float, now: float, waiting: int) -> None:
        """An append has its answer; `waiting` messages were with the target, its own among them."""
        self.is_stalled = False
        self._see(now)
        if started < self._stood_until:
            return
        took_s = now - started
        if took_s < self._base_s or self._base_s == 0:
            self._base_s = took_s
        elif waiting <= LIMIT_MIN or self.limit <= LIMIT_MIN:
            self._base_s += DRIFT * (took_s - self._base_s)
        bound_s = self.bound_s
        if took_s > bound_s:
            if started >= self._cut_at:  # once for what was under way together
                # What waited took too long, so more than that was never the bound; but one hiccup is not to shut the door.
                reached = min(self.limit, max(waiting, self.limit / 4))
                self.limit = max(LIMIT_MIN, reached * max(CUT, bound_s / took_s))
                self._cut_at = now
        elif waiting >= USED * self.limit:
            step = 0.25 * self.limit if took_s < EASY * bound_s else math.sqrt(self.limit)
            self.limit = min(LIMIT_MAX, self.limit + step)

    def look(self, oldest: float, now: float) -> None:
        """Every LOOK_S: the oldest append without an answer was begun then, or there is none and it is now. One that takes too long
        lets nothing more in until it is answered.
        """
        self._see(now)
        self.is_stalled = now - max(oldest, self._stood_until) > STALL * self.bound_s

    def _see(self, now: float) -> None:
        """We are awake; if nobody has said so for long, we were not."""
        if now - self._looked_at > LOOK_S + STANDSTILL_S:
            self._stood_until = now
        self._looked_at = now
