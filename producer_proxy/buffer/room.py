"""Capacity of a store. Entries that do not fit are refused; no entry is ever dropped to make room."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.errors import BufferFull


@dataclass(frozen=True)
class RoomLimits:
    """Limits of a store.

    Attributes:
        bytes_max: of entries. More rides out a longer outage and takes longer to drain.
        age_ms_max: nothing more is stored while the oldest entry is older: an engine that is away for so long needs an
            operator.
        topic_percent_max: of bytes_max for one topic, so that one stuck topic leaves room for the others.
    """

    bytes_max: int = 1 << 30
    age_ms_max: int = 24 * 3_600_000
    topic_percent_max: int = 50

    def faults(self) -> list[str]:
        """Settings out of range, each with its range."""
        rules = (
            (1 << 20 <= self.bytes_max <= 1 << 44, "bytes_max: from 1 MiB to 16 TiB"),
            (self.age_ms_max >= 1000, "age_ms_max: at least 1000"),
            (1 <= self.topic_percent_max <= 100, "topic_percent_max: from 1 to 100"),
        )
        return [text for good, text in rules if not good]


class Room:
    """The contents of a store by topic, checked against the limits."""

    def __init__(self, limits: RoomLimits, now_ms: Callable[[], int]) -> None:
        self._limits, self._now_ms = limits, now_ms
        self.entries = self.bytes = 0
        self._by_topic: dict[str, int] = {}

    def check(self, entries: Iterable[BufferEntry], oldest_at_ms: int | None) -> None:
        """Raises BufferFull when these do not fit as a whole."""
        limits = self._limits
        if oldest_at_ms is not None and self._now_ms() - oldest_at_ms > limits.age_ms_max:
            raise BufferFull(
                f"buffer: its oldest entry is older than {limits.age_ms_max // 1000} s; nothing was stored"
            )
        total, by_topic = 0, dict[str, int]()
        for entry in entries:
            total += entry.size_bytes
            by_topic[entry.topic] = by_topic.get(entry.topic, 0) + entry.size_bytes
        if self.bytes + total > limits.bytes_max:
            raise BufferFull(f"buffer: full at {limits.bytes_max} bytes; nothing was stored")
        share = limits.bytes_max * limits.topic_percent_max // 100
        for topic, size in by_topic.items():
            if self._by_topic.get(topic, 0) + size > share:
                raise BufferFull(f"buffer: topic={topic} has filled its share of {share} bytes; nothing was stored")

    def enter(self, entries: Iterable[BufferEntry]) -> None:
        self._move(entries, 1)

    def leave(self, entries: Iterable[BufferEntry]) -> None:
        self._move(entries, -1)

    def emptied(self) -> "Room":
        """An empty room with the same limits, for a new count."""
        return Room(self._limits, self._now_ms)

    def _move(self, entries: Iterable[BufferEntry], sign: int) -> None:
        for entry in entries:
            size = sign * entry.size_bytes
            if sign < 0 and self._by_topic.get(entry.topic, 0) < -size:  # a new count has replaced this one
                continue
            self.entries += sign
            self.bytes += size
            left = self._by_topic.get(entry.topic, 0) + size
            if left:
                self._by_topic[entry.topic] = left
            else:
                del self._by_topic[entry.topic]
