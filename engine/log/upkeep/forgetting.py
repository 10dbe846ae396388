"""Forgetting a topic of which the log holds nothing any more: its name and its id become unknown.

Order: what other records say about the topic is removed, then a TOPIC record without queues is appended, and once that
is durable the topic's queues leave the view. A crash before the TOPIC record leaves the topic as it is, one after it
leaves keys of the view that no reader asks for. The id is never given again: the topic with the highest one stays.
"""

from engine.link.claim import CLAIM_QUEUE
from engine.log.read.queue_reader import QueueReader
from engine.log.read.retentions import TopicRetentions
from engine.log.read.start_offsets import StartOffsets
from engine.log.segment.segments import LogSegments
from engine.log.types import Topic
from engine.log.view import View
from engine.log.write.catalogue import TopicCatalogue, TopicCreator
from engine.log.write.copied import CopiedQueues
from engine.log.write.durability import Durability


class TopicForgetter:
    """Says whether the log holds records of a topic, and forgets topics of which it holds none."""

    def __init__(
        self, view: View, catalogue: TopicCatalogue, creator: TopicCreator, segments: LogSegments, queues: QueueReader,
        start_offsets: StartOffsets, retentions: TopicRetentions, durability: Durability, copied: CopiedQueues,
    ) -> None:  # fmt: skip
        self._view, self._catalogue, self._creator, self._segments = view, catalogue, creator, segments
        self._queues, self._start_offsets, self._retentions = queues, start_offsets, retentions
        self._durability, self._copied = durability, copied

    def end_if_empty(self, topic: Topic) -> int | None:
        """Sum of the end offsets of the topic's queues when it can be forgotten; else None.

        It cannot while a segment has a message of it, a claim of an id, or an append that is not written yet; also
        messages that a purge or the topic's retention hide count. Nor can the topic that has the highest id, nor one of
        which a retention of its own is kept. Costs a look-up per used queue. Raises OSError, StoreDamagedError.
        """
        if topic.id + 1 >= self._catalogue.next_topic_id or self._retentions.is_kept(topic.id) or self._holds(topic):
            return None
        return sum(self._queues.bounds(topic.id, queue)[1] for queue in self._queues.used(topic.id, topic.queues))

    def _holds(self, topic: Topic) -> bool:
        if not self._segments.sealed.bases.isdisjoint(self._view.segments_of_topic(topic.id)):
            return True
        # Appends that are staged are in the index of the active segment, and below no end yet.
        return any(
            source.first_offset(topic.id, number) is not None
            for source in [segment.source() for segment in (self._segments.active, *self._segments.sealing)]
            for queue in range(topic.queues)
            for number in (queue, CLAIM_QUEUE | queue)
        )

    def forget(self, topic: Topic) -> None:
        """Make the topic unknown. In the page cache on return.

        The caller has made sure, in the same turn of the loop, that end_if_empty() gives a number. Raises DiskFullError.
        """
        self._start_offsets.forget(topic.id)
        self._copied.forget(topic.id)
        self._creator.forget_topic(topic)
        self._durability.when_durable(self._durability.end_position, lambda: self._view.forget_queues(topic.id))
