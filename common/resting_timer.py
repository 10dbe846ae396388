"""Periodic timer that rests while there is nothing to look at, so that an idle process sleeps."""

from collections.abc import Callable

import gevent

REST_S = 1.0
"""Time without work after which timers rest. Less stops and starts them between messages that come rarely."""


class RestingTimer:
    """Runs from `wake()` on; rests until then.

    Args:
        look: called every `interval_s` while the timer runs.
    """

    def __init__(self, interval_s: float, look: Callable[[], object]) -> None:
        self._timer = gevent.get_hub().loop.timer(interval_s, interval_s)
        self._look, self._is_closed = look, False

    @property
    def rests(self) -> bool:
        return not self._timer.active

    def wake(self) -> bool:
        """Run; returns whether it has rested until now."""
        if self._timer.active or self._is_closed:
            return False
        self._timer.start(self._look)
        return True

    def rest(self) -> None:
        """Stop until the next `wake()`."""
        self._timer.stop()

    def close(self) -> None:
        """Rest permanently."""
        self._is_closed = True
        self._timer.stop()
