"""The adaptive bound of a queue: how many messages may wait for a target. The reference of `_queue_limit`.

It works like the gradient limiters of Netflix' concurrency-limits. The time of an append, from its first message to its
answer, is checked against a bound derived from appends with a short queue. Above the bound, fewer messages may wait, in
proportion. Below it, and with the limit in use, more may wait. While the queue is short the limit returns to its first
value. Samples taken with a short queue tell a broker that is slow for every append from one that has a queue.

While this process itself stalls (garbage collection, no processor) the broker's answer may lie unread, so such time is
not counted. Time is passed in, in seconds of a clock that never steps back.
"""

import math

QUEUE_S = 0.25
"""Minimum time of an append above which its queue counts as too long.

More keeps a busy disk busier; less rejects earlier.
"""
QUEUE_S_MAX = 2.0
"""Maximum of that time, however slow the broker is: below the contract's usual deadline of 3 s."""
TOLERANCE = 4.0  # times the time of an append with a short queue
LIMIT_FIRST = 20_000.0
LIMIT_MIN = 32.0
LIMIT_MAX = 1_000_000.0
SHARES = (2.0, 1.0, 0.6)
"""Share of the limit by grade (high, normal, low) up to which a message of that grade is admitted; see
docs/design/0014.
"""
CUT = 0.7  # the strongest cut, once per set of appends that were in flight together
EASY = 0.5  # of the bound; below it the limit grows fast
STALL = 2.0  # times the bound; an append without an answer for longer counts as a stall
USED = 0.4  # of the limit; below the share of the lowest grade, or its traffic alone could never raise it
DRIFT = 0.3
LOOK_S = 0.02
"""Interval between calls of `look`."""
STANDSTILL_S = 0.1
"""Delay of `look` above which this process has stalled.

More attributes pauses of this process to the broker; less counts a busy loop as a pause.
"""


class QueueLimit:
    """The bound of one target.

    Invariant: LIMIT_MIN ≤ limit ≤ LIMIT_MAX; with an empty queue a message is always admitted, whatever the size of its
    call.
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
        """The time that an append may take now."""
        return min(max(TOLERANCE * self._base_s, self.queue_s), max(QUEUE_S_MAX, self.queue_s))

    def admits(self, waiting: int, asked: int, grade: int) -> bool:
        """Whether `asked` more messages of a grade may join the `waiting` ones."""
        return waiting == 0 or (not self.is_stalled and waiting + asked <= self.limit * SHARES[grade])

    def answered(self, started: float, now: float, waiting: int) -> None:
        """Note the answer of an append; `waiting` messages were queued or in flight, its own included."""
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
            if started >= self._cut_at:  # once per set of appends that were in flight together
                # This queue was already too long, so the limit starts from its length. The floor of a quarter keeps one
                # slow append from closing the queue.
                reached = min(self.limit, max(waiting, self.limit / 4))
                self.limit = max(LIMIT_MIN, reached * max(CUT, bound_s / took_s))
                self._cut_at = now
        elif waiting >= USED * self.limit:
            step = 0.25 * self.limit if took_s < EASY * bound_s else math.sqrt(self.limit)
            self.limit = min(LIMIT_MAX, self.limit + step)
        elif waiting <= LIMIT_MIN and took_s < EASY * bound_s and self.limit < LIMIT_FIRST:
            # What stalls have cut is never used by small traffic, and would refuse it at the next stall.
            self.limit = min(LIMIT_FIRST, self.limit + math.sqrt(self.limit))

    def look(self, oldest: float, now: float) -> None:
        """Called every LOOK_S with the start of the oldest append without an answer, or `now` if there is none.

        While that append takes too long, no message is admitted.
        """
        self._see(now)
        self.is_stalled = now - max(oldest, self._stood_until) > STALL * self.bound_s

    def resume(self, now: float) -> None:
        """Called after a pause without calls of `look`, in which no append was in flight: it was no standstill."""
        self._looked_at = now

    def _see(self, now: float) -> None:
        """Note that this process runs. If the last note is old, the process had stalled in between."""
        if now - self._looked_at > LOOK_S + STANDSTILL_S:
            self._stood_until = now
        self._looked_at = now
