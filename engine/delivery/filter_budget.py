"""How much of a loop turn filters may take."""

FILTER_READ_MESSAGES = 1024
"""Records read at once for a filter."""
PAUSE_MS = 15
"""Below the tick of whoever goes on with what was put off, so that each tick finds a new budget."""
TESTS_A_RECORD = 8
"""What reading and walking a record costs, in tests."""


class FilterBudget:
    """A number of tests for each stretch of time. What goes beyond it waits for the next one, and nobody else does."""

    __slots__ = ("_left", "_since_ms", "_tests")

    def __init__(self, tests: int) -> None:
        self._tests, self._left, self._since_ms = tests, 0, -PAUSE_MS

    def is_left(self, now_ms: int) -> bool:
        """Whether filtering may go on."""
        if now_ms - self._since_ms >= PAUSE_MS:
            self._left, self._since_ms = self._tests, now_ms
        return self._left > 0

    def take(self, records: int, cost: int) -> None:
        """So many records have been through a filter of this cost."""
        self._left -= records * (TESTS_A_RECORD + cost)
