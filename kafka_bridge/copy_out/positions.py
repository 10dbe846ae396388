"""Positions of a copy to Kafka: next engine offset per queue, in a group of Kafka, committed with the records.

Each is committed with a note of the topics between which it counts. A position with another note is of a topic that was
deleted and made again, on either side: it counts for nothing. Where the group has none, for example since Kafka has
expired it, the last copied record of the partition tells it. One without a note is an operator's: it may lead back, or over
messages that retention has deleted, and never over others.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from uuid import UUID

from common.config.definitions import CutRecord
from common.config.definitions.copies import CopyOutDefinition
from common.kafka.base import EARLIEST, STABLE_END, ClusterAdmin, KafkaTopic, PartitionReader
from common.kafka.copy_mark import COPY_HEADER, parse_copy_mark
from common.kafka.errors import KafkaFault
from common.kafka.group_admin import CommittedPosition
from common.kafka.records import Partition, Records
from common.kafka.repair_mark import REPAIR_NAME
from kafka_bridge.copy_out.page import EngineTopic

SEARCH_RECORDS = 1_000
SEARCH_WAIT_S, SEARCH_POLLS_MAX = 0.5, 120


def position_group(plan_or_copy: str) -> str:
    """The group of Kafka whose positions are those of a plan's copies, or of a copy without one. It never has members."""
    return f"penstock.copy.{plan_or_copy}"


def group_of(copy: CopyOutDefinition) -> str:
    return position_group(copy.plan or copy.name)


def note_of(place: EngineTopic, kafka_topic_id: UUID) -> str:
    """The note of a position: the engine's topic and Kafka's."""
    return f"{place.log_id}/{place.topic_id}/{kafka_topic_id.hex}"


def transactional_id(copy: CopyOutDefinition) -> str:
    """The same for all copiers of one copy, whatever queues it has: so a newer copier fences an older one."""
    return f"penstock.copy.{copy.plan or 'operator'}.{copy.name}"


def topic_of(admin: ClusterAdmin, topic: str) -> KafkaTopic:
    """Raises KafkaFault: the topic does not exist."""
    found = admin.topics([topic]).get(topic)
    if found is None:
        raise KafkaFault(f'kafka topic "{topic}": it does not exist: create it there')
    return found


class CopiedPositions:
    """Reads the positions of copies. A copier asks after its producer is open, which has ended what was open.

    Args:
        admin: asked for at each use.
        open_reader: opens a reader of committed records, where the group does not have a position.
        group: of `position_group`.
    """

    def __init__(
        self, admin: Callable[[], ClusterAdmin], open_reader: Callable[[], PartitionReader], group: str
    ) -> None:  # fmt: skip
        self._admin, self._open_reader, self._group = admin, open_reader, group
        self._marked: dict[tuple[Partition, EngineTopic], tuple[int, int | None]] = {}

    def committed(self, partitions: Collection[Partition] | None = None) -> dict[Partition, CommittedPosition]:
        """As the group has them, for `of`: of all partitions, or of these at least. Raises KafkaFault."""
        return self._admin().committed(self._group, partitions)

    def of(
        self, topic: KafkaTopic, places: Mapping[int, EngineTopic], committed: Mapping[Partition, CommittedPosition],
        cut: CutRecord | None, is_deleted: Callable[[int, int], bool] = lambda queue, offset: False,
    ) -> dict[int, int]:  # fmt: skip
        """Next offset per queue; a queue of which nothing was copied is left out. Raises KafkaFault.

        Args:
            places: the engine's topic per queue; queues for which Kafka has no partition are left out.
            cut: of the copy's plan, since which its messages were copied; None: since ever.
            is_deleted: whether retention has deleted the message at an offset of a queue. It is asked for positions of
                operators that lead on; without it none of them counts.
        """
        found: dict[int, int] = {}
        for queue, place in places.items():
            partition, at = Partition(topic.name, queue), None
            if queue < topic.partitions:
                since = cut.kafka_end(queue) if cut is not None and cut.kafka_topic_id == str(topic.id) else 0
                begin = cut.engine_first(queue) if cut is not None else 0
                at = self._of(partition, place, topic.id, committed.get(partition), since, begin, is_deleted)
            if at is not None:
                found[queue] = at
        return found

    def _of(
        self, partition: Partition, place: EngineTopic, kafka_topic_id: UUID, committed: CommittedPosition | None,
        since: int, begin: int, is_deleted: Callable[[int, int], bool],
    ) -> int | None:  # fmt: skip
        # A driver may give more than was written; a note is whole where it begins so, since its last part has one length.
        if committed is not None and committed.note.startswith(note_of(place, kafka_topic_id)):
            return committed.offset
        marked = self._after_last_mark(partition, place, since)
        if committed is None or committed.note:
            return marked
        at = begin if marked is None else marked
        leads_on = committed.offset > at and not is_deleted(partition.number, committed.offset - 1)
        return marked if leads_on else committed.offset

    def _after_last_mark(self, partition: Partition, place: EngineTopic, since: int) -> int | None:
        """The engine offset after the last record that was copied to a partition; None: there is none.

        What was searched before is not searched again.
        """
        searched, known = self._marked.get((partition, place), (since, None))
        end = self._admin().offsets([partition], STABLE_END)[partition] or 0
        found = self._search(partition, place, searched, end) if searched < end else None
        self._marked[partition, place] = end, known if found is None else found
        return self._marked[partition, place][1]

    def _search(self, partition: Partition, place: EngineTopic, since: int, end: int) -> int | None:
        first, upper = max(since, self._admin().offsets([partition], EARLIEST)[partition] or 0), end
        span = SEARCH_RECORDS
        with closing(self._open_reader()) as reader:
            while upper > first:
                lower = max(first, end - span)
                reader.assign({partition: lower})
                found, polls = None, 0
                while reader.positions()[partition] < upper:
                    for records in reader.poll(SEARCH_WAIT_S):
                        found = _last_mark(records, partition.number, place, found)
                    if (polls := polls + 1) > SEARCH_POLLS_MAX:
                        raise KafkaFault(f"{partition.topic} {partition.number}: the last copied record was not found")
                if found is not None:
                    return found + 1
                upper, span = lower, span * 4
        return None


def _last_mark(records: Records, queue: int, place: EngineTopic, found: int | None) -> int | None:
    """The engine offset in the last mark of these records that is of the queue; else `found`."""
    for headers, key, value in zip(records.headers, records.keys, records.values, strict=True):
        named = dict(headers)
        mark = parse_copy_mark(named.get(COPY_HEADER))
        if mark is None or REPAIR_NAME in named or not mark.matches(key, value):
            continue  # a repair was written out of its order
        if (mark.log_id, mark.topic_id, mark.queue) == (*place, queue):
            found = max(mark.offset, -1 if found is None else found)
    return found
