"""Time during which this process did not run, as a periodic timer shows by coming late.

A process that was stopped, that got no processor or that collected garbage has not read what its peers sent meanwhile. Who
measures the silence of a peer leaves this time out, else one pause of its own makes all peers look as if they hung.
"""

from collections import deque

LATE_S = 0.010
"""A timer that is later than this shows a stall. Less lengthens the silence that a busy process needs to see."""
KEPT = 256


class Stalls:
    """Stalls of the loop in which `look` is called every `interval_s`. Times are seconds of one monotonic clock."""

    def __init__(self, interval_s: float, now_s: float) -> None:
        self._interval_s, self._looked_s = interval_s, now_s
        self._kept: deque[tuple[float, float]] = deque(maxlen=KEPT)  # (end, duration), oldest first

    def look(self, now_s: float) -> None:
        """Note the time; a stall has just ended if this call is late."""
        late_s = now_s - self._looked_s - self._interval_s
        self._looked_s = now_s
        if late_s > LATE_S:
            self._kept.append((now_s, late_s))

    def resume(self, now_s: float) -> None:
        """Note the time after a pause in which `look` was not to be called."""
        self._looked_s = now_s

    def since(self, start_s: float) -> float:
        """Seconds of stalls after `start_s`; of a stall in which it lies only the later part. The last 256 are known."""
        total_s = 0.0
        for end_s, duration_s in reversed(self._kept):
            if end_s <= start_s:
                break
            total_s += min(duration_s, end_s - start_s)
        return total_s
