"""Partitions of a copy that stand still, since when and why. Written by the copier, read by the operator's pages."""

import threading
from typing import NamedTuple

from common.clock import Clock
from kafka_bridge.heartbeat import Heartbeat

WHOLE = -1
"""In place of a partition: all of the topic."""


class Standstill(NamedTuple):
    """Attributes: partition: WHOLE, or its number; since_ms: Unix time."""

    partition: int
    since_ms: int
    sentence: str


class Standstills:
    """Those of one copy. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[int, Standstill] = {}
        self._changing = threading.Lock()

    def note(self, partition: int, sentence: str) -> bool:
        """A partition cannot be copied now. Returns whether this was not known; a known one keeps its time."""
        with self._changing:
            before = self._found.get(partition)
            since_ms = before.since_ms if before else self._clock.now_ms()
            self._found[partition] = Standstill(partition, since_ms, sentence)
        return before is None or before.sentence != sentence

    def clear(self, partition: int) -> None:
        """A partition is copied."""
        with self._changing:
            self._found.pop(partition, None)

    @property
    def all(self) -> list[Standstill]:
        with self._changing:
            return sorted(self._found.values())

    def with_silence(self, heart: Heartbeat) -> list[Standstill]:
        """All, and as one of the whole topic that the copier's loop waits for an answer for too long."""
        found, silence = self.all, heart.fault
        if not silence or any(each.partition == WHOLE for each in found):
            return found
        return [Standstill(WHOLE, self._clock.now_ms() - int(heart.silent_s * 1000), silence), *found]
