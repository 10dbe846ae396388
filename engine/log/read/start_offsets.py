"""Log start offsets: the lowest readable offset of queues whose topic has a retention of its own.

Segments are deleted by the longest retention in them, so records past a shorter one are hidden, not deleted.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol

from engine.log.read.queue_reader import QueueReader
from engine.log.view import View

KEPT_MS = 1000
"""Time for which a start offset counts before it is looked up again."""

CACHED_MAX = 100_000


class Retention(NamedTuple):
    """A topic's own retention; 0: none, so that the log's applies. `size_bytes` is divided evenly among its queues."""

    age_ms: int = 0
    size_bytes: int = 0


NONE = Retention()


class RetentionPolicy(Protocol):
    """Source of the topics' retentions."""

    @property
    def generation(self) -> int:
        """Rises with each change."""

    @property
    def is_known(self) -> bool:
        """False while the definitions have yet to be read: until then nothing counts as too old."""

    def of(self, topic: str) -> Retention:
        """The topic's own retention."""


class NoRetentionPolicy:
    """The log's own retention for all topics."""

    generation = 0
    is_known = True

    def of(self, topic: str) -> Retention:
        """No topic has a retention of its own."""
        return NONE


class StartOffsets:
    """Start offsets, looked up on demand, so that idle topics cost nothing."""

    def __init__(
        self, reader: QueueReader, view: View, now_ms: Callable[[], int], policy: RetentionPolicy | None = None
    ) -> None:
        self._reader, self._view, self._now_ms = reader, view, now_ms
        self.policy: RetentionPolicy = policy or NoRetentionPolicy()
        self._generation = -1
        self._own: dict[int, Retention] = {}
        self._found: OrderedDict[tuple[int, int], tuple[int, int]] = OrderedDict()

    def retention(self, topic_id: int) -> Retention:
        """The topic's own retention, as the configuration has it now."""
        if self.policy.generation != self._generation or len(self._own) > CACHED_MAX:
            self._generation = self.policy.generation
            self._own.clear()
            self._found.clear()
        found = self._own.get(topic_id)
        if found is None:
            topic = self._view.topic_by_id(topic_id)
            found = self._own[topic_id] = self.policy.of(topic.name) if topic is not None else NONE
        return found

    def of(self, topic_id: int, queue: int) -> int:
        """Log start offset of the queue: records below it are not read.

        Up to a second old; 0 without an own retention.
        """
        own = self.retention(topic_id)
        if own is NONE or not any(own):
            return 0
        now_ms = self._now_ms()
        start, until_ms = self._found.get((topic_id, queue), (0, 0))
        if not until_ms - KEPT_MS <= now_ms < until_ms:
            start = self._look_up(topic_id, queue, own, now_ms)
            self._found[topic_id, queue] = start, now_ms + KEPT_MS
            if len(self._found) > CACHED_MAX:
                self._found.popitem(last=False)
        return start

    def _look_up(self, topic_id: int, queue: int, own: Retention, now_ms: int) -> int:
        start = 0
        if own.age_ms:
            start = self._reader.offset_at_time(topic_id, queue, now_ms - own.age_ms)
        if own.size_bytes:
            topic = self._view.topic_by_id(topic_id)
            share = own.size_bytes // topic.queues if topic is not None else own.size_bytes
            start = max(start, self._reader.offset_within(topic_id, queue, share))
        return start
