"""One transaction's worth of engine records as Kafka records, and the positions after them.

Records that a copier has brought from this Kafka topic are not copied back, nor are those that a reconciliation has
written because Kafka has them; they move the position all the same.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from common.kafka.copy_mark import COPY_HEADER, CopyMark, content_hash
from common.kafka.records import Headers, OutgoingRecords
from common.kafka.repair_mark import REPAIR_NAME, parse_repair_mark
from engine.link.copy import SourceState
from engine.link.pieces import AnswerPiece
from engine.link.record import StoredRecord, read_record
from kafka_bridge.mapping import ID_HEADER, PROPERTY_SUFFIX, record_of
from kafka_bridge.source_identity import topic_id_in


class EngineTopic(NamedTuple):
    """A topic's place in an engine: what a mark names."""

    log_id: str
    topic_id: int


def is_from(state: SourceState, offset: int, topic_id: UUID) -> bool:
    """Whether the copied record at a queue's offset comes from a partition of this Kafka topic.

    Args:
        state: of the queue, asked for after the record was read: the record's source is in it.
        topic_id: Kafka's.
    """
    before = [each for each in state.sources if each.first <= offset]
    if not before:
        return False
    return topic_id_in(max(before, key=lambda each: each.number).source.identity) == topic_id


class OutgoingPage:
    """Gathers records of several queues of one topic.

    Args:
        kafka_topic: the topic to write to; a queue's records go to the partition of its number.
        is_own: whether the copied record at (queue, offset) comes from that topic.
        topic_id: Kafka's.
    Attributes:
        next: per queue, the engine offset after the last record that was added.
        bytes: payload so far.
        skipped: records that were not copied.
    """

    def __init__(
        self, kafka_topic: str, places: Mapping[int, EngineTopic], is_own: Callable[[int, int], bool], topic_id: UUID
    ) -> None:
        self._topic, self._places, self._is_own, self._topic_id = kafka_topic, places, is_own, topic_id.bytes
        self.next: dict[int, int] = {}
        self.bytes = self.skipped = 0
        self._partitions: list[int] = []
        self._timestamps: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[Headers] = []

    def add(self, piece: AnswerPiece) -> None:
        """Raises UnmappableMessage: a record's bytes are not a message. PayloadError: the piece is damaged."""
        at = 0
        for number in range(piece.count):
            record, at = read_record(piece.records, at)
            offset = piece.first_offset + number
            if record.source_offset is not None and self._is_own(piece.queue, offset):
                self.skipped += 1
            else:
                self._add(record, piece, offset)
            self.next[piece.queue] = offset + 1

    def _add(self, record: StoredRecord, piece: AnswerPiece, offset: int) -> None:
        key, value, headers = record_of(record.message, record.assigned_id or None, allows_reserved=True)
        if any(name == REPAIR_NAME for name, _ in headers):
            if self._is_repair(key, value, headers):
                self.skipped += 1
                return
            headers = [(name + PROPERTY_SUFFIX if name == REPAIR_NAME else name, one) for name, one in headers]
        place = self._places[piece.queue]
        mark = CopyMark(place.log_id, place.topic_id, piece.queue, offset, content_hash(key, value))
        self._partitions.append(piece.queue)
        self._timestamps.append(piece.stored_at_ms)
        self._keys.append(key)
        self._values.append(value)
        self._headers.append([*headers, (COPY_HEADER, mark.encode())])
        self.bytes += len(record.message)

    def _is_repair(self, key: bytes | None, value: bytes, headers: Headers) -> bool:
        """Whether the message is in Kafka, because it was written into the engine from there by a reconciliation."""
        found = dict(headers)
        mark = parse_repair_mark(found[REPAIR_NAME])
        shown = found.get(ID_HEADER) or b""
        return mark is not None and mark.names(self._topic_id, shown, key, value)

    @property
    def records(self) -> OutgoingRecords:
        topics: Sequence[str] = [self._topic] * len(self._partitions)
        return OutgoingRecords(topics, self._partitions, self._timestamps, self._keys, self._values, self._headers)
