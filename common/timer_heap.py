"""Timers that mostly never fire: leases get acknowledged and waiting pulls get messages long before their deadlines.

So scheduling and cancelling cost one dict operation each. Nothing of a cancelled timer is kept, and only ticks are
ordered.
"""

from collections.abc import Hashable
from heapq import heappop, heappush


class TimerHeap:
    """Items by due tick. Fires never early and up to `tick_ms` late."""

    def __init__(self, tick_ms: int = 20) -> None:
        self._tick_ms = tick_ms
        self._items: dict[int, dict[Hashable, None]] = {}  # dicts, because they keep the order of arrival
        self._ticks: list[int] = []  # heap; each tick with items is in it once

    def schedule(self, at_ms: int, item: Hashable) -> int:
        """Make `item` due at `at_ms`; returns the tick that cancel() needs."""
        tick = -(-at_ms // self._tick_ms)
        found = self._items.get(tick)
        if found is None:
            self._items[tick] = {item: None}
            heappush(self._ticks, tick)
        else:
            found[item] = None
        return tick

    def cancel(self, tick: int, item: Hashable) -> None:
        """Remove an item; its tick stays in the heap until its time, one integer for all of the tick's items."""
        found = self._items.get(tick)
        if found is not None:
            found.pop(item, None)

    def pop_due(self, now_ms: int) -> list:
        """Remove and return all items that are due."""
        due: list = []
        while self._ticks and self._ticks[0] * self._tick_ms <= now_ms:
            due.extend(self._items.pop(heappop(self._ticks)))
        return due

    def next_at_ms(self) -> int | None:
        """The next time at which pop_due() has work; None when nothing is scheduled."""
        while self._ticks and not self._items[self._ticks[0]]:
            del self._items[heappop(self._ticks)]
        return self._ticks[0] * self._tick_ms if self._ticks else None
