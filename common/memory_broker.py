"""A broker in this process: topics, their queues and their stored records in memory. Nothing survives the process.

It replaces the engine for both proxies: one appends to it, the other reads from it. Records are bytes as an engine
stores them: u32 size, flags, [16 bytes of id], message. Everything runs in one thread.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence


class _Queue:
    """Records by offset, with the time at which each was stored."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.stored_at_ms: list[int] = []


class MemoryBroker:
    """Topics by name, each with queues of records. Offsets begin at 0 and nothing is deleted."""

    def __init__(self) -> None:
        self._topics: dict[str, list[_Queue]] = {}
        self._callbacks: list[Callable[[str, int], None]] = []

    def create_topic(self, name: str, queues: int) -> None:
        """Create the topic, or add queues to it. It never loses queues. Raises ValueError for fewer than one."""
        if queues < 1:
            raise ValueError(f"topic={name}: {queues} queues: at least 1")
        found = self._topics.setdefault(name, [])
        found.extend(_Queue() for _ in range(queues - len(found)))

    def topics(self) -> list[str]:
        """The names of all topics."""
        return list(self._topics)

    def queues(self, name: str) -> int | None:
        """The topic's number of queues; None when there is no such topic."""
        found = self._topics.get(name)
        return None if found is None else len(found)

    def append(self, topic: str, queue: int, records: Sequence[bytes], stored_at_ms: int) -> int:
        """Store records, then call the callbacks; returns the offset of the first record.

        The times of a queue never decrease: an earlier time than the last record's counts as that one.
        Raises KeyError, IndexError for an unknown topic or queue.
        """
        found = self._topics[topic][queue]
        base = len(found.records)
        if not records:
            return base
        if found.stored_at_ms:
            stored_at_ms = max(stored_at_ms, found.stored_at_ms[-1])
        found.records.extend(records)
        found.stored_at_ms.extend([stored_at_ms] * len(records))
        for callback in self._callbacks:
            callback(topic, queue)
        return base

    def read(self, topic: str, queue: int, offset: int, max_records: int) -> list[tuple[int, int, bytes]]:
        """Up to `max_records` of (offset, stored_at_ms, record) from an offset on; none at or after the end."""
        found = self._topics[topic][queue]
        end = min(offset + max_records, len(found.records))
        return [(at, found.stored_at_ms[at], found.records[at]) for at in range(max(offset, 0), end)]

    def end_offset(self, topic: str, queue: int) -> int:
        """The offset of the next record."""
        return len(self._topics[topic][queue].records)

    def offset_at_time(self, topic: str, queue: int, at_ms: int) -> int:
        """The offset of the first record stored at or after a time; the end offset when there is none."""
        return bisect_left(self._topics[topic][queue].stored_at_ms, at_ms)

    def on_append(self, callback: Callable[[str, int], None]) -> None:
        """Have `callback(topic, queue)` called after each append."""
        self._callbacks.append(callback)
