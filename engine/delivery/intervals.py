"""Set of offsets as ranges, for messages that were acknowledged before this process dispatched them."""

from bisect import bisect_left, bisect_right


class IntervalSet:
    """Disjoint, ordered, non-touching ranges first..end."""

    __slots__ = ("ends", "firsts")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.ends: list[int] = []

    def __len__(self) -> int:
        return len(self.firsts)

    def __iter__(self):
        return iter(zip(self.firsts, self.ends, strict=True))

    def add(self, first: int, end: int) -> None:
        """Add a range and merge it with those that it meets."""
        low = bisect_left(self.ends, first)
        high = bisect_right(self.firsts, end)
        if low < high:
            first = min(first, self.firsts[low])
            end = max(end, self.ends[high - 1])
        self.firsts[low:high] = [first]
        self.ends[low:high] = [end]

    def skip(self, offset: int) -> int:
        """Return the first offset from `offset` on that is not in the set; drops the ranges below it."""
        while self.firsts and self.firsts[0] <= offset:
            offset = max(offset, self.ends.pop(0))
            del self.firsts[0]
        return offset

    def first(self) -> int | None:
        """Return the lowest offset in the set, None when it is empty."""
        return self.firsts[0] if self.firsts else None

    def clear(self) -> None:
        """Remove all ranges."""
        self.firsts.clear()
        self.ends.clear()
