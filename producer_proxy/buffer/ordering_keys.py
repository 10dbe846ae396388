"""Ordering keys with a backlog in the buffer: later messages of such a key are diverted too, so that none overtakes.

Keys are counted by their hash in 1,024 slots per topic; messages without a key have one slot. Keys that share a slot
are diverted together. This bounds memory at 1,025 counters per topic, whatever the number of keys.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from common.keyhash import murmur2
from producer_proxy.buffer.entry import BufferEntry

SLOTS = 1024
NO_KEY = -1


def slot_of(key: bytes | None) -> int:
    return NO_KEY if key is None else murmur2(key) & (SLOTS - 1)


OnTopic = Callable[[str, bool], None]


def no_change(topic: str, diverted: bool) -> None:
    """Callback of a store without a proxy: does nothing."""


class OrderingKeys:
    """Number of entries in a store by topic and slot."""

    def __init__(self) -> None:
        self._on_topic: OnTopic = no_change
        self._counts: dict[str, dict[int, int]] = {}

    def watch(self, on_topic: OnTopic) -> None:
        """Call `on_topic(topic, diverted)` when a topic gets its first entry, and when it loses its last."""
        self._on_topic = on_topic

    def holds(self, topic: str, key: bytes | None) -> bool:
        """Whether a message with this key must wait for earlier ones in the store."""
        counts = self._counts.get(topic)
        return counts is not None and slot_of(key) in counts

    def share_held(self, topic: str, slots: Collection[int]) -> int:
        """How many of these slots a message must wait in."""
        counts = self._counts.get(topic)
        return 0 if counts is None else len(counts.keys() & slots)

    def topics(self) -> Iterable[str]:
        """Topics with a backlog."""
        return self._counts.keys()

    def count_of(self, topic: str) -> int:
        """Number of the topic's entries."""
        return sum(self._counts.get(topic, {}).values())

    def become(self, counted: "OrderingKeys") -> None:
        """Take over a new count. A key that has entries in both counts stays diverted throughout."""
        before, self._counts = self._counts, counted._counts
        for topic in before.keys() ^ self._counts.keys():
            self._on_topic(topic, topic in self._counts)

    def enter_counts(self, topic: str, entered: Mapping[int, int]) -> None:
        """As `enter`, of the number of a topic's entries by slot."""
        counts = self._counts.get(topic)
        if counts is None:
            counts = self._counts[topic] = {}
            self._on_topic(topic, True)
        for slot, count in entered.items():
            counts[slot] = counts.get(slot, 0) + count

    def enter(self, entries: Iterable[BufferEntry]) -> None:
        for entry in entries:
            counts = self._counts.get(entry.topic)
            if counts is None:
                counts = self._counts[entry.topic] = {}
                self._on_topic(entry.topic, True)
            slot = slot_of(entry.key)
            counts[slot] = counts.get(slot, 0) + 1

    def leave(self, entries: Iterable[BufferEntry]) -> None:
        for entry in entries:
            counts, slot = self._counts.get(entry.topic, {}), slot_of(entry.key)
            if slot not in counts:  # replaced by a new count
                continue
            counts[slot] -= 1
            if not counts[slot]:
                del counts[slot]
            if not counts:
                del self._counts[entry.topic]
                self._on_topic(entry.topic, False)
