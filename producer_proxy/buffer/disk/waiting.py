"""Numbers of the entries that wait in a disk buffer, by topic and in the order in which they were written.

A number grows with its entry's position, so the order of numbers is the order of writing over all topics. The work per
call follows the entries that it returns, not the topics that have a backlog.

Invariant: the first number of each topic is in `_heads`, or, for a topic that was skipped, in `_aside`.
"""

from collections import deque
from collections.abc import Collection, Iterator
from heapq import heapify, heappop, heappush, heapreplace


class WaitingEntries:
    """The numbers. Both heaps may hold stale heads of topics; those are dropped when they come first."""

    def __init__(self) -> None:
        self._numbers: dict[str, deque[int]] = {}
        self._removed: dict[str, set[int]] = {}  # per topic: removed numbers that are still in its deque
        self._heads: list[tuple[int, str]] = []
        self._aside: dict[str, int] = {}
        self._aside_heads: list[tuple[int, str]] = []

    def add(self, topic: str, number: int) -> None:
        """Append a number, which is greater than all others."""
        numbers = self._numbers.get(topic)
        if numbers is None:
            self._numbers[topic] = deque((number,))
            heappush(self._heads, (number, topic))
        else:
            numbers.append(number)

    def first(self, skip: Collection[str], count: int) -> list[int]:
        """The first `count` numbers of the topics that are not in `skip`. They stay."""
        self._readmit(skip)
        merged: list[tuple[int, Iterator[int]]] = []
        found: list[int] = []
        used: list[tuple[int, str]] = []
        while len(found) < count:
            head = self._top(self._heads)
            if merged and (head is None or merged[0][0] < head[0]):
                number, rest = merged[0]
                found.append(number)
                following = next(rest, None)
                if following is None:
                    heappop(merged)
                else:
                    heapreplace(merged, (following, rest))
            elif head is None:
                break
            else:
                heappop(self._heads)
                if head[1] in skip:
                    self._put_aside(head)
                else:
                    used.append(head)
                    rest = self._of(head[1])
                    heappush(merged, (next(rest), rest))
        for head in used:
            heappush(self._heads, head)
        return found

    def remove(self, topic: str, numbers: set[int]) -> None:
        """Remove numbers of a topic, wherever they are in its queue."""
        waiting = self._numbers[topic]
        before = waiting[0]
        removed = self._removed.get(topic, set()) | numbers
        while waiting and waiting[0] in removed:
            removed.remove(waiting.popleft())
        if removed:
            self._removed[topic] = removed
        else:
            self._removed.pop(topic, None)
        if not waiting:
            del self._numbers[topic]
            self._aside.pop(topic, None)
        elif waiting[0] != before:
            head = (waiting[0], topic)
            if topic in self._aside:
                self._put_aside(head)
            else:
                heappush(self._heads, head)

    def oldest(self) -> int | None:
        """The least number; None without any."""
        head, aside = self._top(self._heads), self._top(self._aside_heads)
        return min((each[0] for each in (head, aside) if each is not None), default=None)

    def find(self, position: int, bits: int) -> tuple[str, int]:
        """The topic and the number of the entry at a position, which is the number without its low `bits`."""
        return next(
            (topic, number)
            for topic, numbers in self._numbers.items()
            for number in numbers
            if number >> bits == position
        )

    def _put_aside(self, head: tuple[int, str]) -> None:
        self._aside[head[1]] = head[0]
        heappush(self._aside_heads, head)

    def _readmit(self, skip: Collection[str]) -> None:
        """Take topics back that are not skipped any more."""
        for topic in [topic for topic in self._aside if topic not in skip]:
            heappush(self._heads, (self._aside.pop(topic), topic))
        if len(self._aside_heads) > 2 * len(self._aside) + 100:
            self._aside_heads = [(number, topic) for topic, number in self._aside.items()]
            heapify(self._aside_heads)

    def _top(self, heap: list[tuple[int, str]]) -> tuple[int, str] | None:
        """The first head that is not stale."""
        is_aside = heap is self._aside_heads
        while heap:
            number, topic = heap[0]
            waiting = self._numbers.get(topic)
            if waiting is not None and waiting[0] == number and (topic in self._aside) == is_aside:
                return heap[0]
            heappop(heap)
        return None

    def _of(self, topic: str) -> Iterator[int]:
        removed = self._removed.get(topic)
        waiting = self._numbers[topic]
        return iter(waiting) if removed is None else (number for number in waiting if number not in removed)
