"""Whether what was copied last is on both sides: ends alone do not tell that a side was put back and filled again."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple, Protocol

from common.config.definitions import CutRecord
from common.kafka.base import EARLIEST, STABLE_END, ClusterAdmin, KafkaTopic, PartitionReader
from common.kafka.errors import KafkaRefusal
from common.kafka.group_admin import CommittedPosition
from common.kafka.records import Partition
from engine.client.single_reads import MessageAt
from engine.link.copy import SourceState
from kafka_bridge.copy_in.last_copied import LastCopied
from kafka_bridge.copy_out.cut_places import CutChecks, CutQueue, cut_places
from kafka_bridge.copy_out.page import EngineTopic
from kafka_bridge.copy_out.positions import position_group
from kafka_bridge.copy_out.tails import CopiedTails, TailRange, places_to_check
from migration.positions import CopiedTopic
from migration.reconcile.kafka_side import fetches
from migration.reconcile.spans import ReadRange

READ_S, POLL_S = 1.0, 0.1


class EngineTails(Protocol):
    """See EnginePositions."""

    def last_copied(self, topic: CopiedTopic, rows: Sequence[SourceState]) -> dict[int, LastCopied]: ...

    def message_at(self, topic: CopiedTopic, queue: int, offset: int) -> MessageAt: ...


class ComingCopy(NamedTuple):
    """A copy from Kafka.

    Attributes:
        rows: states of the queues.
        is_moved: the engine is the home since its cut.
    """

    topic: CopiedTopic
    kafka_topic: KafkaTopic
    rows: Sequence[SourceState]
    is_moved: bool = False


class ReturningCopy(NamedTuple):
    """A copy to Kafka.

    Attributes:
        positions: per queue of which something was copied.
        committed: as the copy's group has them.
        cut: since which it copies.
        rows: states of the queues.
    """

    topic: CopiedTopic
    kafka_topic: KafkaTopic
    places: Mapping[int, EngineTopic]
    positions: Mapping[int, int]
    committed: Mapping[Partition, CommittedPosition]
    cut: CutRecord
    rows: Sequence[SourceState]


class TailChecks:
    """A few records per partition and question, read of all topics together.

    Answers are sentences by topic: why what was copied last is not on both sides; topics where it is are left out. Both
    questions raise KafkaFault, AdminError, OSError.
    """

    def __init__(
        self, kafka: Callable[[], ClusterAdmin], open_reader: Callable[[], PartitionReader], engine: EngineTails
    ) -> None:
        self._kafka, self._open_reader, self._engine = kafka, open_reader, engine

    def coming(self, copies: Sequence[ComingCopy]) -> dict[str, str]:
        """Whether Kafka has what was copied last into the engine."""
        last = {
            Partition(each.topic.name, queue): at
            for each in copies
            for queue, at in self._engine.last_copied(each.topic, each.rows).items()
        }
        if not last:
            return {}
        ids = {each.topic.name: each.kafka_topic.id.bytes for each in copies}
        starts, ends = self._kafka().offsets([*last], EARLIEST), self._kafka().offsets([*last], STABLE_END)
        wanted = {each: at for each, at in last.items() if (starts[each] or 0) <= at.offset < (ends[each] or 0)}
        left = dict(wanted)
        with closing(self._open_reader()) as reader:
            for records in fetches(reader, {each: ReadRange(at.offset, at.offset + 1) for each, at in wanted.items()}):
                each = records.partition
                if any(wanted[each].is_at(records, index, ids[each.topic]) for index in range(len(records.offsets))):
                    left.pop(each, None)
        moved = {each.topic.name for each in copies if each.is_moved}
        return {each.topic: at.loss(each.topic, each, each.topic in moved) for each, at in left.items()}

    def read_last(self, topics: Mapping[str, int]) -> None:
        """Read a record of each of these topics, to know whether they can be read: Kafka permits it per topic.

        A position tells where a group is, also to a user who may not read. Raises KafkaFault: a topic cannot be read.

        Args:
            topics: their numbers of partitions.
        """
        asked = [Partition(name, number) for name, count in topics.items() for number in range(count)]
        if not asked:
            return
        starts, ends = self._kafka().offsets(asked, EARLIEST), self._kafka().offsets(asked, STABLE_END)
        filled = {each.topic: each for each in asked if (starts[each] or 0) < (ends[each] or 0)}
        places = {each: (ends[each] or 0) - 1 for each in filled.values()}
        empty = {Partition(name, 0): ends[Partition(name, 0)] or 0 for name in topics if name not in filled}
        try:
            with closing(self._open_reader()) as reader:
                reader.assign({**places, **empty})
                reader.resume([*places, *empty])  # librdkafka keeps the pause of an earlier assignment
                _poll_beyond(reader, {**places, **empty})
        except KafkaRefusal as refusal:
            raise KafkaRefusal(
                refusal.number, f"what the groups have to read is not known: {refusal}", refusal.topic
            ) from refusal

    def returning(self, copies: Sequence[ReturningCopy]) -> dict[str, str]:
        """Whether the engine has what was copied last to Kafka since the cuts, and else what was cut."""
        wanted = {
            partition: (copy, place)
            for copy in copies
            for partition, place in places_to_check(
                copy.topic.name, copy.kafka_topic.id, copy.places, copy.positions, copy.committed
            ).items()
        }
        if not copies:
            return {}
        asked = [Partition(each.topic.name, n) for each in copies for n in range(each.kafka_topic.partitions)]
        starts, ends = self._kafka().offsets(asked, EARLIEST), self._kafka().offsets(asked, STABLE_END)
        cuts: dict[Partition, CutQueue] = {}
        for copy in copies:
            states = dict(enumerate(copy.rows))
            cuts |= cut_places(copy.kafka_topic, copy.cut, copy.places, states, copy.positions, starts)
        ranges = {}
        for each, (copy, place) in wanted.items():
            is_same = copy.cut.kafka_topic_id == str(copy.kafka_topic.id)
            first = max(starts[each] or 0, copy.cut.kafka_end(each.number) if is_same else 0)
            ranges[each] = TailRange(place, first, ends[each] or 0)
        with closing(self._open_reader()) as reader:
            topics, group = {each.topic.name: each.topic for each in copies}, position_group(copies[0].cut.plan)
            tails = CopiedTails(
                reader, lambda each, at: self._engine.message_at(topics[each.topic], each.number, at), group
            )
            faults = tails.faults(ranges) | CutChecks(reader, tails, group).faults(cuts)
            return {each.topic: sentence for each, sentence in faults.items()}


def _poll_beyond(reader: PartitionReader, positions: Mapping[Partition, int]) -> None:
    """Poll until all positions are passed, for READ_S at most: an empty partition is refused in that time, too."""
    until_s = time.monotonic() + READ_S
    while time.monotonic() < until_s and any(reader.positions().get(each, 0) <= at for each, at in positions.items()):
        reader.poll(POLL_S)
