"""Times by which calls of proxies were made: the wait of a call ends by the monotonic clock, too.

A proxy process numbers its calls in the order in which it makes them. So a call that the engine has seen tells that all
earlier ones of its process were made before. This holds whatever the wall clock shows, and however often it was set.
"""

from bisect import bisect_left

from common.reply_token import call_of

STEP_MS = 1_000
"""A call is known at most so much later than the engine has seen it first."""
PROCESSES_MAX = 1_000
"""Proxy processes whose calls are remembered. One more displaces the one that was seen with a new call the longest ago."""
_WRAP, _HALF = 1 << 32, 1 << 31


class CallTimes:
    """Remembers per proxy process at most one call per `STEP_MS`.

    Args:
        kept_ms: ages above it are not told apart.
    """

    def __init__(self, kept_ms: int) -> None:
        self._kept_ms = kept_ms
        self._seen: dict[int, tuple[list[int], list[int]]] = {}  # calls and times, both ascending

    def see(self, token: bytes, now_ms: int) -> None:
        """Note that the token's call was made before this monotonic time."""
        found = call_of(token)
        if found is None:
            return
        number, instance = found
        calls, times = seen = self._seen.get(instance) or ([], [])
        if calls:
            later = (number - calls[-1]) % _WRAP
            if not 0 < later < _HALF:
                return
            number = calls[-1] + later
            if times[-1] // STEP_MS == now_ms // STEP_MS:
                calls[-1], times[-1] = number, now_ms
                return
        calls.append(number)
        times.append(now_ms)
        while len(times) > 1 and times[1] <= now_ms - self._kept_ms:
            del calls[0], times[0]
        self._seen.pop(instance, None)
        if len(self._seen) >= PROCESSES_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[instance] = seen

    def age_ms(self, token: bytes, now_ms: int, at: int = 0) -> int:
        """Time that has passed at least since the call of the token at `at` was made; 0: unknown."""
        found = call_of(token, at)
        seen = self._seen.get(found[1]) if found is not None else None
        if found is None or seen is None:
            return 0
        calls, times = seen
        earlier = (calls[-1] - found[0]) % _WRAP
        return now_ms - times[bisect_left(calls, calls[-1] - earlier)] if earlier < _HALF else 0
