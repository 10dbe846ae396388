"""Numbers of partitions per topic, kept for some time. Both producers ask through it."""

import threading
import time
from collections.abc import Callable

from common.kafka.base import METADATA_AGE_S


class PartitionCounts:
    """Thread-safe; one question at a time.

    Args:
        ask: returns a topic's number of partitions, or raises KafkaFault.
    """

    def __init__(self, ask: Callable[[str], int], now: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._now = ask, now
        self._known: dict[str, tuple[int, float]] = {}
        self._asking = threading.Lock()

    def of(self, topic: str) -> int:
        """Raises KafkaFault: it is not known, and the cluster does not tell."""
        count, read_at = self._known.get(topic, (0, 0.0))
        if count and self._now() - read_at < METADATA_AGE_S:
            return count
        with self._asking:
            count, read_at = self._known.get(topic, (0, 0.0))
            if not count or self._now() - read_at >= METADATA_AGE_S:
                count = self._ask(topic)
                self._known[topic] = (count, self._now())
        return count

    def forget(self, topic: str) -> None:
        """After a sign that the topic has changed."""
        self._known.pop(topic, None)
