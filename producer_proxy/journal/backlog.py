"""Entries that wait for their repair, by topic and in the order of their intents; their ordering keys are diverted.

An entry is one int: its position, the queue at the primary plus one (0: not known), and whether the secondary may have it
already. So the order of numbers is that of positions, and a million entries take 50 MB.
"""

from collections.abc import Callable, Collection, Iterable
from heapq import heapify, heappop, heappush, nsmallest
from typing import NamedTuple

from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.ordering_keys import OrderingKeys

_QUEUE_BITS = 17
_SHIFT = _QUEUE_BITS + 1


class WaitingRepair(NamedTuple):
    """One entry.

    Attributes:
        queue: at the primary; None: whether the primary has it is not known.
        is_asked_for: the secondary may have it, so it is asked before the entry is written there.
    """

    position: int
    queue: int | None
    is_asked_for: bool


class RepairBacklog:
    """
    Attributes:
        ordering_keys: keys with entries here.
        count: number of entries.
    """

    def __init__(self) -> None:
        self.ordering_keys = OrderingKeys()
        self.count = 0
        self._numbers: dict[str, list[int]] = {}  # a heap per topic
        self._highest = -1  # of all numbers that were ever here
        self._in_hand: dict[int, tuple[str, WaitingRepair]] = {}  # by position

    @property
    def topics(self) -> Collection[str]:
        """Topics with entries that wait; those of a batch that is being repaired may be left out."""
        return self._numbers.keys()

    def holds(self, topic: str, key: bytes | None) -> bool:
        """Whether a message of this key must wait for earlier ones."""
        return self.ordering_keys.holds(topic, key)

    def count_of(self, topic: str) -> int:
        """Number of the topic's entries."""
        return self.ordering_keys.count_of(topic)

    def first(self, topic: str, count_max: int) -> list[WaitingRepair]:
        """The topic's first entries, those that were taken included."""
        waiting = [_unpacked(number) for number in _first_of(self._numbers.get(topic, []), count_max)]
        taken = [repair for name, repair in self._in_hand.values() if name == topic]
        return nsmallest(count_max, waiting + taken, key=lambda each: each.position)

    def divert(self, entry: BufferEntry, repair: WaitingRepair) -> None:
        """Add an entry; its key is diverted until it has left. Its message is not looked at."""
        self.ordering_keys.enter((entry,))
        self.count += 1
        self._put(entry.topic, repair)

    def divert_batch(self, repairs: Iterable[tuple[str, list[int], dict[int, int]]]) -> None:
        """As `divert`, of all entries of a TappedBatch: the result of its `repairs`.

        The numbers of each element ascend. A topic may be in several, if its destination has changed.
        """
        before, seen = self._highest, set[str]()
        for topic, numbers, counts in repairs:
            if not numbers:
                continue
            self.ordering_keys.enter_counts(topic, counts)
            self.count += len(numbers)
            heap = self._numbers.setdefault(topic, [])
            if numbers[0] > before and topic not in seen:
                heap += numbers  # ascending numbers above all others: it stays a heap
            else:
                for number in numbers:
                    heappush(heap, number)
            seen.add(topic)
            self._highest = max(self._highest, numbers[-1])

    def take(
        self, wanted: Callable[[str], bool], count_max: int, before: int | None
    ) -> list[tuple[str, WaitingRepair]]:
        """The first entries of the topics that are `wanted`, without those from position `before` on.

        They stay counted. Each is then given to `put_back` or `leave`.
        """
        limit = None if before is None else before << _SHIFT
        heads = [(numbers[0], topic) for topic, numbers in self._numbers.items() if wanted(topic)]
        heapify(heads)
        taken: list[tuple[str, WaitingRepair]] = []
        while heads and len(taken) < count_max:
            number, topic = heads[0]
            if limit is not None and number >= limit:
                break
            numbers = self._numbers[topic]
            heappop(numbers)
            heappop(heads)
            repair = _unpacked(number)
            taken.append((topic, repair))
            self._in_hand[repair.position] = topic, repair
            if numbers:
                heappush(heads, (numbers[0], topic))
            else:
                del self._numbers[topic]
        return taken

    def put_back(self, topic: str, repair: WaitingRepair) -> None:
        """Let an entry that was taken wait again."""
        self._in_hand.pop(repair.position, None)
        self._put(topic, repair)

    def leave(self, entries: Iterable[BufferEntry], positions: Iterable[int]) -> None:
        """Forget entries that were taken, each with its position."""
        entries = list(entries)
        self.ordering_keys.leave(entries)
        self.count -= len(entries)
        for position in positions:
            self._in_hand.pop(position, None)

    def _put(self, topic: str, repair: WaitingRepair) -> None:
        number = packed(*repair)
        heappush(self._numbers.setdefault(topic, []), number)
        self._highest = max(self._highest, number)


def _first_of(heap: list[int], count_max: int) -> list[int]:
    """The smallest numbers of a heap, in order, without a look at the others: each is a child of one before it."""
    found: list[int] = []
    candidates = [(number, 0) for number in heap[:1]]
    while candidates and len(found) < count_max:
        number, at = heappop(candidates)
        found.append(number)
        for child in range(2 * at + 1, min(2 * at + 3, len(heap))):
            heappush(candidates, (heap[child], child))
    return found


def packed(position: int, queue: int | None, is_asked_for: bool) -> int:
    """A WaitingRepair as one number."""
    return (position << _QUEUE_BITS | (0 if queue is None else queue + 1)) << 1 | is_asked_for


def _unpacked(number: int) -> WaitingRepair:
    queue = (number >> 1) & ((1 << _QUEUE_BITS) - 1)
    return WaitingRepair(number >> _SHIFT, queue - 1 if queue else None, bool(number & 1))
