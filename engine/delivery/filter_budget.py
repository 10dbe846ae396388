"""Budget of filters: the share of a loop turn that they may take."""

FILTER_READ_MESSAGES = 1024
"""Records read at once for a filter."""
PERIOD_MS = 15
"""Below the tick of the loop that resumes filtering, so that each tick finds a new budget."""
TESTS_PER_RECORD = 8
"""Cost of reading and scanning a record, in tests."""


class FilterBudget:
    """A number of tests per period. Filtering beyond it waits for the next period; other work continues."""

    __slots__ = ("_left", "_since_ms", "_tests")

    def __init__(self, tests: int) -> None:
        self._tests, self._left, self._since_ms = tests, 0, -PERIOD_MS

    def is_left(self, now_ms: int) -> bool:
        """Whether filtering may continue."""
        if now_ms - self._since_ms >= PERIOD_MS:
            self._left, self._since_ms = self._tests, now_ms
        return self._left > 0

    def spend(self, records: int, cost: int) -> None:
        """Charge for `records` records that a filter of this cost has decided."""
        self._left -= records * (TESTS_PER_RECORD + cost)
