"""Positions of Kafka's consumer groups as offsets of the engine, by the map that lies in the messages themselves.

A group's position in the engine is the first message there that is not among the records below its position in Kafka. It is
checked by the messages before and after it, which must have the same id and content on both sides. So nothing is skipped
and nothing is read again, as long as the engine has the records that the group has read.
"""

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from common.kafka.base import EARLIEST, STABLE_END, ClusterAdmin, PartitionReader
from common.kafka.copy_mark import COPY_HEADER, is_copy_of, parse_copy_mark
from common.kafka.records import Partition, Records
from common.kafka.repair_mark import REPAIR_NAME
from common.names import stored_name
from engine.client.copied import CopiedPlace, engine_offset_of
from engine.link.copy import SourceState
from engine.link.record import StoredRecord, read_record
from migration.errors import PlanRefused
from migration.positions import CopiedTopic, EngineLink, EnginePositions
from migration.reconcile.engine_side import message_at, pieces, queue_reports
from migration.reconcile.kafka_side import fetches, record_at
from migration.reconcile.rows import OFFSET_MAX, HashKey, QueueScope, row_of_record, row_of_stored
from migration.reconcile.spans import ReadRange

SEARCH_RECORDS = 1_000
_KEY: HashKey = (0, 0)
COMPARED = 16
"""Bytes of a row that both sides have: the hashes of id and content."""


class TranslatedPosition(NamedTuple):
    """
    Attributes:
        kafka: the group's next offset there.
        engine: the offset in the queue from which on the group has not read it.
        end: of the queue.
        checked: which neighbours were compared: "before", "after", both, or "" where there is none.
    """

    queue: int
    kafka: int
    engine: int
    end: int
    checked: str


class GroupPositions:
    """Translates the positions of one topic's groups. Blocks; raises KafkaFault, AdminError, OSError, PayloadError.

    Args:
        kafka_topic_id: 16 bytes.
        open_reader: opens a reader of committed records.
        is_cut: whether the topic was ever cut: then messages of the engine's own may be in Kafka.
    """

    def __init__(
        self, topic: CopiedTopic, kafka_topic_id: bytes, kafka: ClusterAdmin, engine: EnginePositions,
        open_reader: Callable[[], PartitionReader], *, is_cut: bool,
    ) -> None:  # fmt: skip
        self._topic, self._kafka, self._open_reader, self._is_cut = topic, kafka, open_reader, is_cut
        self._stored = stored_name(topic.name, topic.made_ms)
        self._rows = engine.copied([topic])[topic.name]
        places = engine.places(topic, self._rows)
        self._scopes = {
            each.number: QueueScope(kafka_topic_id, each.number, *place, 0, OFFSET_MAX, 0, OFFSET_MAX)
            for each, place in places.items()
        }
        self.links = {queue: home.link for home in engine.homes(topic) for queue in home.queues}

    def translated(self, committed: dict[int, int]) -> list[TranslatedPosition]:
        """The positions in the engine of next offsets by partition.

        Raises:
            PlanRefused: the engine does not have all that the group has read, or the neighbours differ.
        """
        with closing(self._open_reader()) as reader:
            return [self._translated(reader, queue, at) for queue, at in sorted(committed.items())]

    def _translated(self, reader: PartitionReader, queue: int, committed: int) -> TranslatedPosition:
        if queue >= len(self._rows) or not self._rows[queue].number:
            raise PlanRefused(
                f"topic {self._topic.name} queue {queue}: its copy has not begun: is a Kafka bridge running?"
            )
        state, partition = self._rows[queue], Partition(self._topic.name, queue)
        earliest = self._kafka.offsets([partition], EARLIEST)[partition] or 0
        stable = self._kafka.offsets([partition], STABLE_END)[partition] or 0
        side = _PartitionSide(reader, partition, self._scopes[queue], earliest, min(committed, stable), stable)
        if committed > state.next and side.first_foreign(state.next, side.committed) is not None:
            raise PlanRefused(
                f"{self._where(queue)}: the group has read up to offset {committed:,}, and {state.next:,} is copied: wait "
                "until the copy has caught up"
            )
        report = queue_reports(self.links[queue], self._stored, [queue])[queue]
        found = self._copied_at(queue, state, committed)
        start = end = found.offset if found is not None else max(state.end, report.first)
        mark = side.last_mark() if self._is_cut else None
        own_next = mark + 1 if mark is not None else 0
        span = ReadRange(max(min(start, own_next or start), report.first), min(max(end, own_next), report.end))
        at = self._first_unread(queue, span, committed, own_next)
        checked = [self._check(side, queue, at - 1, "before"), self._check(side, queue, at, "after")]
        return TranslatedPosition(queue, committed, at, report.end, " and ".join(filter(None, checked)))

    def _copied_at(self, queue: int, state: SourceState, committed: int) -> CopiedPlace | None:
        """The first copied record at or above a Kafka offset, of the present source under any of its numbers."""
        for number in _numbers(state, committed):
            found = engine_offset_of(self.links[queue], self._stored, queue, committed, number)
            if found is not None:
                return found
        return None

    def _first_unread(self, queue: int, span: ReadRange, committed: int, own_next: int) -> int:
        """The first offset whose message is not among the records below the group's position.

        Args:
            own_next: messages of the engine's own below it are in Kafka, below the position.
        """
        for piece in pieces(self.links[queue], self._stored, {queue: span}):
            at = 0
            for number in range(piece.count):
                record, at = read_record(piece.records, at)
                offset, source = piece.first_offset + number, record.source_offset
                if (source is None and offset >= own_next) or (source is not None and source >= committed):
                    return offset
        return max(span)

    def _check(self, side: "_PartitionSide", queue: int, offset: int, place: str) -> str:
        """Compare a copied message with its record. Returns `place`; empty: there is nothing to compare.

        Raises:
            PlanRefused: they differ, or the record lies on the other side of the group's position.
        """
        found = message_at(self.links[queue], self._stored, queue, offset) if offset >= 0 else None
        record = found[0] if found is not None else None
        if record is None or record.source_offset is None or record.source_offset < side.earliest:
            return ""
        where = f"{self._where(queue)}: engine offset {offset:,} and Kafka offset {record.source_offset:,}"
        is_read = record.source_offset < side.committed
        if is_read is not (place == "before"):
            raise PlanRefused(f"{where}: the message {place} the group's position lies on its other side")
        if not side.has(record, offset):
            raise PlanRefused(f"{where}: id or content differ: compare with `penstock migrate verify` first")
        if place == "after" and side.first_foreign(side.committed, record.source_offset) is not None:
            raise PlanRefused(f"{where}: a record between the group's position and this one is not in the engine")
        return place

    def _where(self, queue: int) -> str:
        return f"topic {self._topic.name} queue {queue}"

    def reset(self, link: EngineLink, group: str, position: TranslatedPosition) -> None:
        """Set the group's progress in one queue, also of a group that the engine does not know. Raises AdminError."""
        link.ask("reset", group=group, topic=self._topic.name, to=position.engine, queue=position.queue, create=True)


class _PartitionSide(NamedTuple):
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
                    headers = dict(records.headers[index])
                    if offset < upper and REPAIR_NAME not in headers and self._is_own(records, index):
                        mark = parse_copy_mark(headers[COPY_HEADER])
                        found = mark.offset if mark is not None else found
            if found is not None:
                return found
            upper, span = lower, span * 4
        return None

    def has(self, record: StoredRecord, offset: int) -> bool:
        """Whether Kafka has the same message at the offset that the engine's record names."""
        assert record.source_offset is not None
        found = record_at(self.reader, self.partition, record.source_offset, record.source_offset + 1)
        stored = row_of_stored(record, offset, 0, self.scope, _KEY)
        return found is not None and row_of_record(*found, self.scope, _KEY)[:COMPARED] == stored[:COMPARED]


def _numbers(state: SourceState, offset: int) -> list[int]:
    """The numbers under which records of this offset or later ones of the present source were copied, in their order."""
    own = sorted(each for each in state.sources if each.source == state.source)
    before = [each.number for each in own if each.start <= offset]
    return [each.number for each in own if each.number >= (before[-1] if before else 0)]
