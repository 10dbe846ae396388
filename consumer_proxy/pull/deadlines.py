"""Until when each pull may wait for its answer, without a timer each."""

from typing import Any


class Deadlines:
    """Items in buckets of time: adding and discarding cost one set operation, and nothing is sorted.

    An item comes out up to one `step_s` late, never early.
    """

    def __init__(self, step_s: float = 0.25):
        self.step_s = step_s
        self._buckets: dict[int, set[Any]] = {}

    def add(self, at_s: float, item: Any) -> int:
        """Keep the item until `at_s`; the number returned is for `discard`."""
        bucket = int(at_s / self.step_s) + 1
        items = self._buckets.get(bucket)
        if items is None:
            self._buckets[bucket] = {item}
        else:
            items.add(item)
        return bucket

    def discard(self, bucket: int, item: Any) -> None:
        items = self._buckets.get(bucket)
        if items is not None:
            items.discard(item)

    def pop_due(self, now_s: float) -> list[Any]:
        """The items whose time has passed; they are forgotten. To be called every `step_s`."""
        present = int(now_s / self.step_s)
        due = [bucket for bucket in self._buckets if bucket <= present]
        return [item for bucket in sorted(due) for item in self._buckets.pop(bucket)]
