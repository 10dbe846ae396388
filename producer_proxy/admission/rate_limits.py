"""Rate-limit admission of one call, message by message: admitted at once, after a short hold, or refused with a time to
retry.
"""

import math
from collections.abc import Iterable

from common.limits import Meter
from common.limits.retry_slot import HOLD_S, RetrySlot, wait_of

ANSWER_S = 0.1
"""Time of its deadline that a held call has left. A call with less is refused, which is certain, and not timed out."""


class RateLimitAdmission:
    """Admission of one call.

    Args:
        shared: limits of every message of the call: the application's, the proxy's.
        now: seconds of the meters' clock.
        slot: the slot that the caller's connection was given; None: it has none.
        timeout_s: the deadline of the call.
    """

    def __init__(
        self, shared: Iterable[Meter | None], now: float, slot: RetrySlot | None = None, timeout_s: float = math.inf
    ) -> None:
        self._shared = [meter for meter in shared if meter is not None]
        self._now, self._slot = now, slot
        self._hold_max_s = max(0.0, min(HOLD_S, timeout_s - ANSWER_S))
        self._refused: dict[Meter, list[int]] = {}  # [messages, bytes] that a meter had no room for
        self._slots: dict[Meter, float] = {}  # seconds from now, of the refused messages
        self.hold_s = 0.0

    def admit(self, meter: Meter | None, size: int) -> list[Meter]:
        """Admit one message of `size` bytes, whose topic has this limit, and return []; or return the broken limits.

        After its first refusal a limit admits no further message of the call: a later message must not overtake.
        """
        meters = self._shared if meter is None else [*self._shared, meter]
        waits = {each: wait_of(each, 1, size, self._now, self._slot) for each in meters}
        broken = [each for each, wait in waits.items() if each in self._refused or wait > self._hold_max_s]
        if broken:
            self._refuse(meters, broken, size)
            return broken
        for each, wait in waits.items():
            self._take(each, size, wait)
        self.hold_s = max(self.hold_s, *waits.values()) if waits else self.hold_s
        return []

    def _take(self, meter: Meter, size: int, wait_s: float) -> None:
        if wait_s == 0 or (self._slot is not None and self._slot.is_due(meter, self._now)):
            meter.take(1, size)
        else:
            meter.take_behind(1, size)
        if wait_s > 0:
            meter.refuse(0, 0)  # count the shortage of tokens: the share is too small

    def _refuse(self, meters: list[Meter], broken: list[Meter], size: int) -> None:
        for each in meters:
            if each not in broken:
                each.refuse(1, size)
        for each in broken:
            refused = self._refused.setdefault(each, [0, 0])
            refused[0] += 1
            refused[1] += size

    def next_slot(self) -> RetrySlot | None:
        """Promise each broken limit's refused messages their slot; returns that of the call. None: nothing was refused.

        Call it once, after the last `admit`.
        """
        if not self._refused:
            return None
        kept = self._slot if self._slot is not None and self._slot.is_ahead(self._now) else None
        for meter, (messages, size) in self._refused.items():
            if kept is not None and meter in kept.meters:
                meter.refuse(messages, size)
                # It may ask for more than it was promised.
                self._slots[meter] = max(kept.at - self._now, meter.wait_s(messages, size, self._now))
            else:
                self._slots[meter] = meter.promise(messages, size, self._now)
        return RetrySlot(self._now + max(self._slots.values()), tuple(self._slots))

    def retry_after_ms(self, broken: list[Meter]) -> int:
        """The time until the slot of all messages that these limits refused; after `next_slot`.

        It counts from the answer, which comes after the call's hold.
        """
        return max(1, math.ceil(1000 * (max(self._slots[each] for each in broken) - self.hold_s)))
