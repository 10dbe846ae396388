"""Log start offsets: the lowest readable offset of queues whose topic has a retention of its own, or was purged.

Segments are deleted by the longest retention in them, so records past a shorter one are hidden, not deleted. So are
those that an operator purges. Key of progress: b"\0purged" ‖ u32 topic id ‖ u32 queue, big-endian → u64 offset.
"""

import struct
from collections import OrderedDict
from collections.abc import Mapping

from common.believed_time import BelievedTime
from engine.log.read.queue_reader import QueueReader
from engine.log.read.retentions import Retention, RetentionPolicy, TopicRetentions
from engine.log.view import View
from engine.log.write.progress import ProgressRecords

KEPT_MS = 1000
"""Time for which a start offset counts before it is looked up again."""

CACHED_MAX = 100_000
_PURGED = b"\0purged"
_QUEUE = struct.Struct(">II")


class StartOffsets:
    """Start offsets, looked up on demand, so that idle topics cost nothing."""

    def __init__(
        self, reader: QueueReader, view: View, time: BelievedTime, retentions: TopicRetentions,
        records: ProgressRecords,
    ) -> None:  # fmt: skip
        self._records = records
        self._reader, self._view, self._time, self._retentions = reader, view, time, retentions
        self._generation = -1
        self._found: OrderedDict[tuple[int, int], tuple[int, int]] = OrderedDict()
        self.load()

    def load(self) -> None:
        """Read the records of purges."""
        self._purged = {
            _QUEUE.unpack(key[len(_PURGED) :]): int.from_bytes(value, "big")
            for key, value in self._records.progress(_PURGED)
        }
        self._found.clear()

    @property
    def policy(self) -> RetentionPolicy:
        """Source of the definitions' retentions."""
        return self._retentions.policy

    @policy.setter
    def policy(self, policy: RetentionPolicy) -> None:
        self._retentions.policy = policy

    def of(self, topic_id: int, queue: int) -> int:
        """Log start offset of the queue: records below it are not read.

        Up to a second old; 0 without an own retention and a purge.
        """
        if self._purged and (topic_id, queue) in self._purged:
            return max(self._purged[topic_id, queue], self._of_retention(topic_id, queue))
        return self._of_retention(topic_id, queue)

    def purge(self, topic_id: int, ends: Mapping[int, int]) -> None:
        """Hide the records below an offset per queue from now on. In the page cache on return. Raises DiskFullError."""
        found = {(topic_id, queue): end for queue, end in ends.items() if end > self._purged.get((topic_id, queue), 0)}
        self._records.put_progress(
            [(_PURGED + _QUEUE.pack(*key), end.to_bytes(8, "big")) for key, end in found.items()]
        )
        self._purged.update(found)

    def forget(self, topic_id: int) -> None:
        """Drop what is kept of a topic that is gone."""
        gone = [key for key in self._purged if key[0] == topic_id]
        self._records.put_progress([(_PURGED + _QUEUE.pack(*key), b"") for key in gone])
        for key in gone:
            del self._purged[key]

    def _of_retention(self, topic_id: int, queue: int) -> int:
        if self._generation != self.policy.generation:
            self._generation = self.policy.generation
            self._found.clear()
        own = self._retentions.of(topic_id)
        if own is None or not own.is_own:
            return 0
        now_ms = self._time.now_ms()
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
