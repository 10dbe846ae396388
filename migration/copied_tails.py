"""Whether what was copied last is on both sides: ends alone do not tell that a side was put back and filled again."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import NamedTuple, Protocol

from common.config.definitions import CutRecord
from common.kafka.base import EARLIEST, END, STABLE_END, ClusterAdmin, KafkaTopic, PartitionReader
from common.kafka.codes import GROUP_AUTHORIZATION_FAILED
from common.kafka.errors import KafkaRefusal
from common.kafka.group_admin import CommittedPosition
from common.kafka.records import Partition
from common.quoting import quoted
from engine.client.single_reads import MessageAt
from engine.link.copy import SourceState
from kafka_bridge.copy_in.last_copied import LastCopied
from kafka_bridge.copy_out.cut_places import CutChecks, CutQueue, copied_below, cut_places, rolled_back_places
from kafka_bridge.copy_out.lacked import Lacked, LackedMessages, QueueBelow, open_partitions
from kafka_bridge.copy_out.page import EngineTopic
from kafka_bridge.copy_out.positions import position_group
from kafka_bridge.copy_out.tails import TailRange, places_to_check
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
        rolled_back: the place up to which both sides had all when Kafka became the home again; None: it did not.
        places: the engine's topic per queue; of a topic that was rolled back.
    """

    topic: CopiedTopic
    kafka_topic: KafkaTopic
    rows: Sequence[SourceState]
    is_moved: bool = False
    rolled_back: CutRecord | None = None
    places: Mapping[int, EngineTopic] = MappingProxyType({})


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
        """Whether Kafka has what was copied last into the engine, and both have what they had at a rollback."""
        return self._rolled_back([each for each in copies if each.rolled_back is not None]) | self._last(copies)

    def _rolled_back(self, copies: Sequence[ComingCopy]) -> dict[str, str]:
        if not copies:
            return {}
        asked = [Partition(each.topic.name, n) for each in copies for n in range(each.kafka_topic.partitions)]
        starts, last_ends = self._kafka().offsets(asked, EARLIEST), self._kafka().offsets(asked, END)
        ends = self._kafka().offsets(asked, STABLE_END)
        below: dict[Partition, QueueBelow] = {}
        for each in copies:
            states = dict(enumerate(each.rows))
            places = cut_places(each.kafka_topic, each.rolled_back, each.places, states, {}, starts, ends)
            below |= rolled_back_places(places, open_partitions(last_ends, ends))
        topics = {each.topic.name: each.topic for each in copies}
        with closing(self._open_reader()) as reader:
            messages = LackedMessages(
                reader, lambda each, at: self._engine.message_at(topics[each.topic], each.number, at)
            )
            return {each.topic: _since_rollback(each, at, below[each]) for each, at in messages.of(below).items()}

    def _last(self, copies: Sequence[ComingCopy]) -> dict[str, str]:
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

    def may_read(self, topics: Mapping[str, int], groups: Sequence[str]) -> None:
        """Ask whether bridges may be members of these groups, and read a record of each topic: Kafka permits both one by one.

        A position tells where a group is, also to a user who may not read. Raises KafkaFault: a topic cannot be read, or no
        bridge can be a member of a group.

        Args:
            topics: their numbers of partitions.
        """
        self._may_join(groups)
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

    def _may_join(self, groups: Sequence[str]) -> None:
        refused = self._kafka().not_joinable(groups)
        if refused:
            raise KafkaRefusal(
                GROUP_AUTHORIZATION_FAILED,
                f"what the groups have to read cannot be read: group {', '.join(refused)}: GROUP_AUTHORIZATION_FAILED: Kafka's "
                "access lists do not let the cluster's user READ it: no bridge can be a member",
            )

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
        starts, last_ends = self._kafka().offsets(asked, EARLIEST), self._kafka().offsets(asked, END)
        ends = self._kafka().offsets(asked, STABLE_END)
        cuts: dict[Partition, CutQueue] = {}
        below: dict[Partition, QueueBelow] = {}
        for copy in copies:
            states = dict(enumerate(copy.rows))
            cuts |= cut_places(copy.kafka_topic, copy.cut, copy.places, states, copy.positions, starts, ends)
            own = [each for each in wanted if each.topic == copy.topic.name]
            below |= copied_below(copy.kafka_topic, states, copy.positions, starts, ends, own)
        ranges = {}
        for each, (copy, place) in wanted.items():
            is_same = copy.cut.kafka_topic_id == str(copy.kafka_topic.id)
            first = max(starts[each] or 0, copy.cut.kafka_end(each.number) if is_same else 0)
            ranges[each] = TailRange(place, first, ends[each] or 0)
        with closing(self._open_reader()) as reader:
            topics, group = {each.topic.name: each.topic for each in copies}, position_group(copies[0].cut.plan)
            checks = CutChecks(
                reader, lambda each, at: self._engine.message_at(topics[each.topic], each.number, at), group
            )
            faults = checks.faults(cuts, below, open_partitions(last_ends, ends)) | checks.tails.faults(ranges)
            return {each.topic: sentence for each, sentence in faults.items()}


def _since_rollback(partition: Partition, lacked: Lacked, at: QueueBelow) -> str:
    where = f"topic {quoted(partition.topic)} queue {partition.number}"
    if lacked.is_engine:
        return (
            f"{where}: the engine has not, below its offset {at.below:,}, what both sides had at the rollback: it was put back to "
            "an older copy: what it lacks is written by `penstock migrate verify PLAN --all --repair`; then say so, while no "
            f"bridge copies, by `penstock kafka accept {partition.topic} --partition {partition.number} --start "
            f"{at.state.next} --reason TEXT`"
        )
    return (
        f"{where}: from offset {lacked.first:,} on Kafka has not the engine's messages that were copied back before the "
        f"rollback, below {at.place:,} there: it was put back to an older copy, or has lost records, and others have their "
        "offsets: what Kafka lacks is written by `penstock migrate verify PLAN --all --repair`"
    )


def _poll_beyond(reader: PartitionReader, positions: Mapping[Partition, int]) -> None:
    """Poll until all positions are passed, for READ_S at most: an empty partition is refused in that time, too."""
    until_s = time.monotonic() + READ_S
    while time.monotonic() < until_s and any(reader.positions().get(each, 0) <= at for each, at in positions.items()):
        reader.poll(POLL_S)
