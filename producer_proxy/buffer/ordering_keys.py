"""Which keys have diverted: whoever has a backlog in the buffer stays behind it, so that nothing newer overtakes.

A unit of order is a slot of a topic: keys by their hash in 1,024 slots, and one slot for messages without a key. Keys that share a
slot divert together, which is stricter than asked and keeps memory within 1,025 counters a topic however many keys there are.
"""

from collections.abc import Callable, Iterable

from common.keyhash import murmur2
from producer_proxy.buffer.entry import Entry

SLOTS = 1024
NO_KEY = -1


def slot_of(key: bytes | None) -> int:
    return NO_KEY if key is None else murmur2(key) & (SLOTS - 1)


class Units:
    """How many entries of each unit are in a store.

    Args:
        on_topic: called as (topic, diverted) when a topic gets its first entry and when it has lost its last.
    """

    def __init__(self, on_topic: Callable[[str, bool], None] = lambda topic, diverted: None) -> None:
        self.on_topic = on_topic
        self._counts: dict[str, dict[int, int]] = {}

    def holds(self, topic: str, key: bytes | None) -> bool:
        """Whether a message with this key has to stay behind others."""
        counts = self._counts.get(topic)
        return counts is not None and slot_of(key) in counts

    def topics(self) -> Iterable[str]:
        """Those with a backlog."""
        return self._counts.keys()

    def become(self, counted: "Units") -> None:
        """Take over what was counted anew. No key that has entries in both is let go in between."""
        before, self._counts = self._counts, counted._counts
        for topic in before.keys() ^ self._counts.keys():
            self.on_topic(topic, topic in self._counts)

    def enter(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            counts = self._counts.get(entry.topic)
            if counts is None:
                counts = self._counts[entry.topic] = {}
                self.on_topic(entry.topic, True)
            slot = slot_of(entry.key)
            counts[slot] = counts.get(slot, 0) + 1

    def leave(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            counts, slot = self._counts.get(entry.topic, {}), slot_of(entry.key)
            if slot not in counts:  # gone by itself, as everything was counted anew meanwhile
                continue
            counts[slot] -= 1
            if not counts[slot]:
                del counts[slot]
            if not counts:
                del self._counts[entry.topic]
                self.on_topic(entry.topic, False)
