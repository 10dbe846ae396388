"""The time by which checked ids are forgotten: the believed time at the start, then the monotonic clock.

A window is a span between two sends, so nothing that happens to the wall clock while the process runs may end or prolong
it. What lies in segments and id files is stamped by the wall clock; a start translates it (upkeep/id_restore.py).
"""

from collections.abc import Callable


class IdTime:
    """Unix time in milliseconds that never steps.

    Args:
        monotonic_ms: the clock that it follows.
        started_ms: the time now.

    Attributes:
        ahead_ms: by how much it is ahead of that clock; native code adds the two without a call of `now_ms()`.
    """

    def __init__(self, monotonic_ms: Callable[[], int], started_ms: int) -> None:
        self.monotonic_ms, self.ahead_ms = monotonic_ms, max(started_ms, 0) - monotonic_ms()

    def now_ms(self) -> int:
        """The time now, never negative."""
        return self.ahead_ms + self.monotonic_ms()
