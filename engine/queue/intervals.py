"""A set of offsets as ranges, for acknowledgements that come before this process has handed the messages out."""

from bisect import bisect_left, bisect_right


class IntervalSet:
    """Disjoint, ordered, non-touching ranges first..end."""

    __slots__ = ("_ends", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self):
        return iter(zip(self._firsts, self._ends, strict=True))

    def add(self, first: int, end: int) -> None:
        """Add a range; ranges that it meets become one with it."""
        low = bisect_left(self._ends, first)
        high = bisect_right(self._firsts, end)
        if low < high:
            first = min(first, self._firsts[low])
            end = max(end, self._ends[high - 1])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]

    def skip(self, offset: int) -> int:
        """The first offset from `offset` on that is not in the set; ranges below it are dropped."""
        while self._firsts and self._firsts[0] <= offset:
            offset = max(offset, self._ends.pop(0))
            del self._firsts[0]
        return offset

    def first(self) -> int | None:
        """The lowest offset in the set."""
        return self._firsts[0] if self._firsts else None

    def clear(self) -> None:
        """Make it empty."""
        self._firsts.clear()
        self._ends.clear()
