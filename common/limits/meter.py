"""Token buckets of one limit: messages and bytes per second. The reference of `_meter`.

Time is passed in, in seconds of a clock that never steps back.
"""

import math
from typing import Any

BURST_S = 1.0
"""Seconds of its rate that a bucket holds. More lets an idle client send a larger burst; the average is the same."""
STALLED_S = 1.0
"""The wait that a rate of 0 reports, because it is unknown when the rate will rise."""
PROMISED_S = 5.0
"""Seconds of its rate that a bucket promises ahead.

More gives a larger crowd of callers one slot each; less forgets promises to callers that do not return sooner.
"""


class _Bucket:
    __slots__ = ("burst", "limited", "promised", "rate", "tokens")

    def __init__(self) -> None:
        self.limited = False
        self.rate = self.burst = self.tokens = self.promised = 0.0

    def set_rate(self, rate: float | None) -> None:
        if rate is None:
            self.limited = False
            return
        self.rate = max(0.0, rate)
        self.burst = max(1.0, self.rate * BURST_S)
        if not self.limited or self.tokens > self.burst:
            self.tokens = self.burst
        self.promised = min(self.promised, self.rate * PROMISED_S)
        self.limited = True

    def fill(self, seconds: float) -> None:
        self.tokens += self.rate * seconds
        over = self.tokens - self.burst
        if over > 0:
            self.tokens = self.burst
            self.redeem(over)  # these promised tokens were not taken in time

    def room(self) -> float:
        return self.tokens if self.limited else math.inf

    def wait_s(self, amount: float) -> float:
        if not self.limited:
            return 0.0
        missing = min(amount, self.burst) - self.tokens
        if missing <= 0:
            return 0.0
        return missing / self.rate if self.rate > 0 else STALLED_S

    def slot_s(self, amount: float) -> float:
        wait_s = self.wait_s(amount)
        return wait_s + self.promised / self.rate if wait_s and self.rate > 0 else wait_s

    def promise(self, amount: float) -> float:
        slot_s = self.slot_s(amount)
        if self.limited:
            self.promised = min(self.promised + amount, self.rate * PROMISED_S)
        return slot_s

    def redeem(self, amount: float) -> None:
        self.promised = max(0.0, self.promised - amount)


class Meter:
    """Two buckets; a message must pass both.

    A message larger than a bucket passes when the bucket is full and is paid for afterwards. So the average holds, and
    every message passes eventually. A caller that delays a call takes its tokens at once: they fall below zero, and
    later calls wait after it.

    A rejected caller is promised a slot: the tokens that come after those promised before. Promises are counted, not
    kept by caller: each caller that takes tokens redeems as many. What was promised and not taken is forgotten when the bucket
    overflows, and never reaches further ahead than PROMISED_S.

    Attributes:
        used: a list that the meter joins at its first use while `noted` is false; None: its use is not watched.
        limit: what the owner of that list keeps with the meter.

    Invariant: over any time t, at most rate · t + burst + one message (or one call that passed as a whole) pass.
    """

    __slots__ = (
        "__weakref__", "_bytes", "_messages", "_refilled_at", "asked_bytes", "asked_messages", "limit", "noted", "short",
        "used",
    )  # fmt: skip

    def __init__(self) -> None:
        self._messages, self._bytes = _Bucket(), _Bucket()
        self._refilled_at = 0.0
        self.asked_messages = self.asked_bytes = 0.0
        self.short = [False, False]
        self.limit: Any = None
        self.used: list[Meter] | None = None
        self.noted = False

    def set_rates(self, messages: float | None, bytes: float | None, now: float) -> None:
        """Continue at these rates per second; None: not limited.

        A newly limited bucket starts full; others keep their tokens.
        """
        self._refill(now)
        self._messages.set_rate(messages)
        self._bytes.set_rate(bytes)

    def wait_s(self, messages: float, bytes: float, now: float) -> float:
        """Seconds until this amount could be taken if no other caller takes any; 0.0: now."""
        self._refill(now)
        return max(self._messages.wait_s(messages), self._bytes.wait_s(bytes))

    def room(self, now: float) -> tuple[float, float]:
        """(messages, bytes) that could be taken now; infinite without a limit."""
        self._refill(now)
        return self._messages.room(), self._bytes.room()

    def slot_s(self, messages: float, bytes: float, now: float) -> float:
        """Seconds until this amount could be taken after all that is promised; 0.0: now."""
        self._refill(now)
        return max(self._messages.slot_s(messages), self._bytes.slot_s(bytes))

    def take(self, messages: float, bytes: float) -> None:
        """Take this amount, whether or not the buckets hold it. Redeems promises of as much."""
        self._messages.redeem(messages)
        self._bytes.redeem(bytes)
        self.take_behind(messages, bytes)

    def take_behind(self, messages: float, bytes: float) -> None:
        """Take this amount after all that is promised: for a caller that is delayed by `slot_s`."""
        self._note()
        self.asked_messages += messages
        self.asked_bytes += bytes
        self._messages.tokens -= messages
        self._bytes.tokens -= bytes

    def refuse(self, messages: float, bytes: float) -> None:
        """Note a rejected amount: it counts as demand."""
        self._note()
        self.asked_messages += messages
        self.asked_bytes += bytes
        self.short[0] |= self._messages.wait_s(messages) > 0
        self.short[1] |= self._bytes.wait_s(bytes) > 0

    def promise(self, messages: float, bytes: float, now: float) -> float:
        """Reject this amount, as `refuse`, and return the seconds until its slot."""
        self._refill(now)
        self.refuse(messages, bytes)
        return max(self._messages.promise(messages), self._bytes.promise(bytes))

    def read_demand(self) -> tuple[float, float, bool, bool]:
        """(messages, bytes, whether messages were short, whether bytes were) since the last call."""
        demand = self.asked_messages, self.asked_bytes, self.short[0], self.short[1]
        self.asked_messages = self.asked_bytes = 0.0
        self.short = [False, False]
        return demand

    def _note(self) -> None:
        if not self.noted:
            self.noted = True
            if self.used is not None:
                self.used.append(self)

    def _refill(self, now: float) -> None:
        seconds = now - self._refilled_at
        if seconds > 0:
            self._messages.fill(seconds)
            self._bytes.fill(seconds)
            self._refilled_at = now
