"""Reads the messages of findings again: their ids, and what a repair writes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from common.kafka.base import EARLIEST, ClusterAdmin, PartitionReader
from common.kafka.records import Headers, Partition
from engine.client.copied import source_offset_at
from engine.link.record import StoredRecord
from kafka_bridge.copy_in.messages import RecordPlace, message_id
from kafka_bridge.mapping import fields_of
from migration.positions import EngineLink, EnginePositions
from migration.reconcile.bounds import TopicBounds
from migration.reconcile.engine_side import message_at, queue_reports
from migration.reconcile.findings import Discrepancy, DiscrepancyKind
from migration.reconcile.kafka_side import fetches
from migration.reconcile.spans import ReadRange, merged

GAP = 2_000
_ID = 6


class KafkaRecord(NamedTuple):
    """A record of Kafka."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class FindingReads:
    """Reads of one topic's findings. All calls block and raise KafkaFault, AdminError, OSError or PayloadError."""

    def __init__(
        self, bounds: TopicBounds, kafka: ClusterAdmin, engine: EnginePositions,
        open_reader: Callable[[], PartitionReader],
    ) -> None:  # fmt: skip
        self.bounds, self._kafka, self._open_reader = bounds, kafka, open_reader
        self._links = {queue: home.link for home in engine.homes(bounds.topic) for queue in home.queues}

    def link(self, queue: int) -> EngineLink:
        """To the engine that has the queue."""
        return self._links[queue]

    def records(self, queue: int, offsets: Iterable[int]) -> Iterator[KafkaRecord]:
        """The committed records at these offsets of a partition, in their order. Those that are gone are left out."""
        wanted = set(offsets)
        partition = Partition(self.bounds.topic.name, queue)
        first = self._kafka.offsets([partition], EARLIEST)[partition] or 0
        ranges = merged([ReadRange(at, at + 1) for at in wanted if at >= first], GAP)
        if not ranges:
            return
        with closing(self._open_reader()) as reader:
            for each in ranges:
                for fetched in fetches(reader, {partition: each}):
                    for index, offset in enumerate(fetched.offsets):
                        if offset in wanted:
                            wanted.discard(offset)
                            yield KafkaRecord(
                                offset, fetched.timestamps[index], fetched.keys[index], fetched.values[index],
                                fetched.headers[index],
                            )  # fmt: skip

    def stored(self, queue: int, offset: int) -> tuple[StoredRecord, int] | None:
        """A message of the engine and when it was stored; None: it is gone."""
        return message_at(self._links[queue], self.bounds.stored, queue, offset)

    def confirmed(self, found: list[Discrepancy]) -> list[Discrepancy]:
        """The findings with their ids, without those that retention explains: it goes on while both sides are read."""
        kafka = {each: self._kafka_ids(each, found) for each in {one.queue for one in found}}
        kept = []
        for each in found:
            if each.kafka_offsets:
                shown = next((kafka[each.queue][at] for at in each.kafka_offsets if at in kafka[each.queue]), None)
                if shown is None or self._is_deleted_in_engine(each):
                    continue
            else:
                shown = self._engine_id(each)
                if shown is None:
                    continue
            kept.append(replace(each, id=shown.decode("utf-8", "replace")))
        return kept

    def _kafka_ids(self, queue: int, found: list[Discrepancy]) -> dict[int, bytes]:
        scope = self.bounds.scopes[queue]
        offsets = [at for one in found if one.queue == queue for at in one.kafka_offsets[:1]]
        return {
            each.offset: message_id(each.headers, RecordPlace(scope.kafka_topic_id, queue, each.offset))
            for each in self.records(queue, offsets)
        }

    def _engine_id(self, each: Discrepancy) -> bytes | None:
        """None: retention has deleted the message, or its record in Kafka."""
        found = self.stored(each.queue, each.engine_offsets[0])
        if found is None:
            return None
        record = found[0]
        partition = Partition(self.bounds.topic.name, each.queue)
        earliest = self._kafka.offsets([partition], EARLIEST)[partition] or 0
        is_own, at = self.bounds.scopes[each.queue].place_of(record, each.engine_offsets[0])
        if not is_own and at < earliest:
            return None
        return engine_id(record)

    def _is_deleted_in_engine(self, each: Discrepancy) -> bool:
        """Whether the engine's retention, which goes on, has meanwhile passed a message that is missing there."""
        if each.kind is not DiscrepancyKind.MISSING_IN_ENGINE:
            return False
        link, stored, queue = self._links[each.queue], self.bounds.stored, each.queue
        first = queue_reports(link, stored, [queue])[queue].first
        if first <= self.bounds.starts[queue]:
            return False
        found = source_offset_at(link, stored, queue, first)
        return found is None or each.kafka_offsets[0] < found.source_offset


def engine_id(record: StoredRecord) -> bytes:
    """The id of a stored message as clients see it."""
    return record.assigned_id.hex().encode() if record.assigned_id else fields_of(record.message)[0].get(_ID, b"")
