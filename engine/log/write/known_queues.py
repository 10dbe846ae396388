"""Queues as the appender knows them: their number by topic, and their next offsets. Reference for _known_queues.pyx."""

import logging
from typing import Protocol

from common.limited_log import LimitedLog
from engine.link.codes import UNAVAILABLE
from engine.log.segment.index import SegmentIndex

logger = LimitedLog(logging.getLogger(__name__))


class NextOffsetSource(Protocol):
    """Next offsets of queues that the active segment has not seen."""

    older: list[SegmentIndex]

    def load(self, topic_id: int, queue: int) -> int: ...

    def load_free(self, topic_id: int, queue: int) -> int: ...


class QueueCountSource(Protocol):
    """Numbers of queues of topics that the appender has not met yet."""

    def load_queue_count(self, topic_id: int) -> int: ...


class KnownQueues:
    """Base of the appender. See _known_queues.pyx.

    Attributes:
        unknown_batches: batches refused because the view could not be read.
    """

    def __init__(self, offsets: NextOffsetSource, topics: QueueCountSource) -> None:
        self._offsets, self._topics, self.older = offsets, topics, offsets.older
        self._topic_queues: dict[int, int] = {}
        self.unknown_batches = 0

    def set_topic(self, topic_id: int, queues: int) -> None:
        """Note the number of the topic's queues."""
        self._topic_queues[topic_id] = queues

    def queue_count(self, topic_id: int) -> int:
        """Number of the topic's queues; 0 when there is no such topic."""
        queues = self._topic_queues.get(topic_id, 0)
        if not queues:
            queues = self._topics.load_queue_count(topic_id)
            if queues:
                self._topic_queues[topic_id] = queues
        return queues

    def next_offset(self, topic_id: int, queue: int) -> int:
        """Offset after the queue's last record, when the segment being written holds none of it."""
        found = self._known_counter(topic_id, queue)
        return self._offsets.load(topic_id, queue) if found is None else found

    def free_offset(self, topic_id: int, queue: int) -> int:
        """Offset that a new record gets, when the segment being written holds none of the queue."""
        found = self._known_counter(topic_id, queue)
        return self._offsets.load_free(topic_id, queue) if found is None else found

    def _known_counter(self, topic_id: int, queue: int) -> int | None:
        known = (index.next_offset(topic_id, queue) for index in self.older)
        return next((found for found in known if found is not None), None)

    def refuse_unknown(self, topic_id: int, error: Exception) -> int:
        """Refuse one batch because the view cannot be read. Nothing of it has been staged."""
        self.unknown_batches += 1
        logger.error("topic=%d: a batch is refused: the view cannot be read: %s", topic_id, error)
        return UNAVAILABLE
