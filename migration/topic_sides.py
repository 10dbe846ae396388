"""A topic on both sides around the positions of a group, for translations of positions in both directions."""

from collections.abc import Callable
from typing import NamedTuple

from common.kafka.base import EARLIEST, STABLE_END, ClusterAdmin, KafkaTopic, PartitionReader
from common.kafka.copy_mark import COPY_HEADER, is_copy_of, parse_copy_mark
from common.kafka.records import Partition, Records
from common.kafka.repair_mark import REPAIR_NAME
from common.names import stored_name
from engine.link.copy import SourceState
from engine.link.record import StoredRecord
from kafka_bridge.source_identity import topic_id_in
from migration.errors import PlanRefused
from migration.positions import CopiedTopic, EnginePositions
from migration.reconcile.engine_side import QueueReport, queue_reports
from migration.reconcile.kafka_side import fetches, record_at
from migration.reconcile.rows import OFFSET_MAX, HashKey, QueueScope, row_of_record, row_of_stored
from migration.reconcile.spans import ReadRange

SEARCH_RECORDS = 1_000
KEY: HashKey = (0, 0)
COMPARED = 16
"""Bytes of a row that both sides have: the hashes of id and content."""


class PartitionSide(NamedTuple):
    """A partition around a group's position."""

    reader: PartitionReader
    partition: Partition
    scope: QueueScope
    earliest: int
    committed: int
    stable: int

    def first_foreign(self, first: int, end: int) -> int | None:
        """The first record of these offsets that has to be copied into the engine; None: there is none."""
        for records in fetches(
            self.reader, {self.partition: ReadRange(max(first, self.earliest), min(end, self.stable))}
        ):
            for index, offset in enumerate(records.offsets):
                if first <= offset < end and not self._is_own(records, index):
                    return offset
        return None

    def _is_own(self, records: Records, index: int) -> bool:
        scope = self.scope
        row = (records.headers[index], records.keys[index], records.values[index])
        return is_copy_of(scope.log_id, scope.topic_id, *row)

    def last_mark(self) -> int | None:
        """The engine offset of the last own message of the engine below the position; None: there is none."""
        upper, span = self.committed, SEARCH_RECORDS
        while upper > self.earliest:
            lower = max(self.earliest, upper - span)
            found = None
            for records in fetches(self.reader, {self.partition: ReadRange(lower, upper)}):
                for index, offset in enumerate(records.offsets):
                    if offset < upper and (mark := self._mark_of(records, index)) is not None:
                        found = mark
            if found is not None:
                return found
            upper, span = lower, span * 4
        return None

    def first_mark(self, start: int, mark: int) -> tuple[int, int] | None:
        """The first own message of the engine from a Kafka offset on whose engine offset is at least `mark`.

        Returns its offset here and that in the engine; None: there is none.
        """
        for records in fetches(self.reader, {self.partition: ReadRange(max(start, self.earliest), self.stable)}):
            for index, offset in enumerate(records.offsets):
                found = self._mark_of(records, index)
                if start <= offset < self.stable and found is not None and found >= mark:
                    return offset, found
        return None

    def place_of(self, mark: int) -> int | None:
        """The offset of the engine's own message at this engine offset, also if a reconciliation has written it."""
        for records in fetches(self.reader, {self.partition: ReadRange(self.earliest, self.stable)}):
            for index, offset in enumerate(records.offsets):
                found = parse_copy_mark(dict(records.headers[index]).get(COPY_HEADER))
                if found is not None and found.offset == mark and self._is_own(records, index):
                    return offset
        return None

    def _mark_of(self, records: Records, index: int) -> int | None:
        """The engine offset of an own message of the engine that the copier has brought; None: it is none."""
        headers = dict(records.headers[index])
        if REPAIR_NAME in headers or not self._is_own(records, index):
            return None
        found = parse_copy_mark(headers[COPY_HEADER])
        return found.offset if found is not None else None

    def has(self, record: StoredRecord, offset: int) -> bool:
        """Whether Kafka has the same message at the offset that the engine's record names."""
        assert record.source_offset is not None
        return self.has_at(record.source_offset, record, offset)

    def has_at(self, at: int, record: StoredRecord, offset: int) -> bool:
        """Whether Kafka has the same message at its offset `at`."""
        found = record_at(self.reader, self.partition, at, at + 1)
        stored = row_of_stored(record, offset, 0, self.scope, KEY)
        return found is not None and row_of_record(*found, self.scope, KEY)[:COMPARED] == stored[:COMPARED]


class TopicSides:
    """One topic of a plan in the engine and in Kafka. Blocks; raises KafkaFault, AdminError, OSError.

    Args:
        open_reader: opens a reader of committed records; its owner closes it.
    Attributes:
        rows: states of the queues' sources, as they were at the beginning.
        links: by queue, to the engine that has it.
    """

    def __init__(
        self, topic: CopiedTopic, kafka_topic: KafkaTopic, kafka: ClusterAdmin, engine: EnginePositions,
        open_reader: Callable[[], PartitionReader],
    ) -> None:  # fmt: skip
        self.topic, self.kafka_topic, self.kafka, self.open_reader = topic, kafka_topic, kafka, open_reader
        self.stored = stored_name(topic.name, topic.made_ms)
        self.rows = engine.copied([topic])[topic.name]
        self.scopes = {
            each.number: QueueScope(kafka_topic.id.bytes, each.number, *place, 0, OFFSET_MAX, 0, OFFSET_MAX)
            for each, place in engine.places(topic, self.rows).items()
        }
        self.links = {queue: home.link for home in engine.homes(topic) for queue in home.queues}

    def source(self, queue: int) -> SourceState:
        """Raises PlanRefused: nothing was copied into the queue yet."""
        if queue >= len(self.rows) or not self.rows[queue].number:
            raise PlanRefused(f"{self.where(queue)}: its copy has not begun: is a Kafka bridge running?")
        state = self.rows[queue]
        if state.source is not None and topic_id_in(state.source.identity) != self.kafka_topic.id:
            raise PlanRefused(
                f"{self.where(queue)}: the topic in Kafka was deleted and made again: offsets of before are no positions in it"
            )
        return state

    def partition(self, reader: PartitionReader, queue: int, committed: int = OFFSET_MAX) -> PartitionSide:
        """The partition of a queue around a position; without one, around its end. Raises PlanRefused: there is none."""
        if queue >= self.kafka_topic.partitions:
            raise PlanRefused(f"{self.where(queue)}: Kafka has no such partition: add partitions there")
        each = Partition(self.topic.name, queue)
        earliest = self.kafka.offsets([each], EARLIEST)[each] or 0
        stable = self.kafka.offsets([each], STABLE_END)[each] or 0
        return PartitionSide(reader, each, self.scopes[queue], earliest, min(committed, stable), stable)

    def report(self, queue: int) -> QueueReport:
        """The queue's bounds in the engine."""
        return queue_reports(self.links[queue], self.stored, [queue])[queue]

    def where(self, queue: int) -> str:
        return f"topic {self.topic.name} queue {queue}"
