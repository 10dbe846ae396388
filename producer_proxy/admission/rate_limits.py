"""Rate-limit admission of one call, message by message: admitted at once, after a short hold, or refused with a time to
retry.
"""

import math
from collections.abc import Iterable

from common.limits import Meter

HOLD_S = 0.1
"""The longest hold. More smooths bursts of clients that do not retry, and keeps more greenlets waiting."""


class RateLimitAdmission:
    """Admission of one call.

    Args:
        shared: limits of every message of the call: the application's, the proxy's.
        now: seconds of the meters' clock.
    """

    def __init__(self, shared: Iterable[Meter | None], now: float) -> None:
        self._shared = [meter for meter in shared if meter is not None]
        self._now = now
        self._refused: dict[Meter, list[int]] = {}  # [messages, bytes] that a meter had no room for
        self.hold_s = 0.0

    def admit(self, meter: Meter | None, size: int) -> list[Meter]:
        """Admit one message of `size` bytes, whose topic has this limit, and return []; or return the broken limits.

        After its first refusal a limit admits no further message of the call: a later message must not overtake.
        """
        meters = self._shared if meter is None else [*self._shared, meter]
        waits = {each: each.wait_s(1, size, self._now) for each in meters}
        broken = [each for each, wait in waits.items() if each in self._refused or wait > HOLD_S]
        if broken:
            self._refuse(meters, broken, size)
            return broken
        for each, wait in waits.items():
            each.take(1, size)
            if wait > 0:
                each.refuse(0, 0)  # count the shortage of tokens: the share is too small
        self.hold_s = max(self.hold_s, *waits.values()) if waits else self.hold_s
        return []

    def _refuse(self, meters: list[Meter], broken: list[Meter], size: int) -> None:
        for each in meters:
            each.refuse(1, size)
        for each in broken:
            refused = self._refused.setdefault(each, [0, 0])
            refused[0] += 1
            refused[1] += size

    def retry_after_ms(self, broken: list[Meter]) -> int:
        """The time until these limits would admit all refused messages of the call, without other callers.

        Call it after the last `admit`. It counts from the answer, which comes after the call's hold.
        """
        wait_s = max(each.wait_s(*self._refused[each], self._now) for each in broken)
        return max(1, math.ceil(1000 * (wait_s - self.hold_s)))
