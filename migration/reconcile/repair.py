"""Repair of messages that one side lacks: each is written there under its id, with a mark.

Into the engine: an append behind the queue's end, not a copied batch, whose position would move; so a copier that runs
notices nothing. Into Kafka: a record with `penstock-copy`, which the copier into the engine leaves out by its own rule,
by a producer without a transactional id, which fences nobody. `penstock-repair` keeps the copy back from writing the
former to Kafka, and tells a later comparison which message it stands for. See docs/design/0035-migration.md, "Repair".
"""

import base64
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from common.contract import Message, decode_struct, encode_struct
from common.kafka.base import KafkaProducer
from common.kafka.copy_mark import COPY_HEADER, CopyMark, content_hash, is_copy_of, parse_copy_mark
from common.kafka.records import NO_TIMESTAMP, Headers, OutgoingRecords, ProduceResults
from common.kafka.repair_mark import REPAIR_NAME, RepairMark, repair_hash
from engine.client.admin import AdminError
from engine.link.append import FSYNC, encode_append, read_results
from engine.link.batch import encode_batch
from engine.link.codes import OK
from engine.link.operations import APPEND
from engine.link.record import StoredRecord, encode_record
from kafka_bridge.copy_in.foreign_headers import decode_headers
from kafka_bridge.copy_in.messages import (
    HEADERS_PROPERTY,
    KEY_PROPERTY,
    NULL_PROPERTY,
    TIME_PROPERTY,
    ForeignRecordTooLarge,
    RecordPlace,
    message_id,
    message_key,
    message_of,
)
from kafka_bridge.mapping import record_of
from migration.reconcile.findings import Discrepancy, DiscrepancyKind
from migration.reconcile.lookups import FindingReads, KafkaRecord, engine_id
from migration.reconcile.rows import QueueScope

FLUSH_S = 40.0


class Repaired(NamedTuple):
    """
    Attributes:
        engine, kafka: messages that were written to this side.
        refused: sentences on those that were not.
    """

    engine: int
    kafka: int
    refused: list[str]


class TopicRepair:
    """
    Args:
        open_producer: opens a producer without a transactional id, at the first record for Kafka; the caller closes it.
    """

    def __init__(self, reads: FindingReads, open_producer: Callable[[], KafkaProducer]) -> None:
        self._reads, self._open_producer = reads, open_producer
        self._refused: list[str] = []

    def repair(self, found: Iterable[Discrepancy], take: str = "") -> Repaired:
        """Write what is missing, and with `take` = kafka or engine that side's altered messages to the other side.

        A message is in the engine durably on return. May be repeated: what was written is found by the next comparison.
        Blocks; raises KafkaFault, AdminError, OSError.
        """
        to_engine: dict[int, list[int]] = defaultdict(list)
        to_kafka: list[tuple[int, int]] = []
        for each in found:
            is_altered = each.kind is DiscrepancyKind.ALTERED
            if each.kind is DiscrepancyKind.MISSING_IN_ENGINE or (is_altered and take == "kafka"):
                to_engine[each.queue] += each.kafka_offsets if not is_altered else each.kafka_offsets[-1:]
            elif each.kind is DiscrepancyKind.MISSING_IN_KAFKA or (is_altered and take == "engine"):
                offsets = each.engine_offsets if not is_altered else each.engine_offsets[-1:]
                to_kafka += [(each.queue, offset) for offset in offsets]
        self._refused = []
        engine = sum(self._write_to_engine(queue, offsets) for queue, offsets in to_engine.items())
        return Repaired(engine, self._write_to_kafka(to_kafka) if to_kafka else 0, self._refused)

    def _write_to_engine(self, queue: int, offsets: list[int]) -> int:
        scope, topic, written = self._reads.bounds.scopes[queue], self._reads.bounds.topic.name, 0
        for each in self._reads.records(queue, offsets):
            try:
                record = engine_record(topic.encode(), each, scope)
            except ForeignRecordTooLarge as fault:
                self._refused.append(f"{topic} partition {queue} offset {each.offset:,}: {fault}")
                continue
            batch = encode_batch(scope.topic_id, queue, [record])
            code, payload = self._reads.link(queue).call(APPEND, encode_append(FSYNC, batch))
            if code == OK:
                ((code, _, _),) = read_results(payload)
            if code != OK:
                raise AdminError(code, f"topic={topic} queue={queue}: the repair of offset {each.offset} was refused")
            written += 1
        return written

    def _write_to_kafka(self, places: list[tuple[int, int]]) -> int:
        topic, rows, stored = self._reads.bounds.topic.name, [], []
        for queue, offset in places:
            found = self._reads.stored(queue, offset)
            if found is not None:
                stored.append((queue, offset))
                rows.append(kafka_record(*found, offset, self._reads.bounds.scopes[queue]))
        results: list[ProduceResults] = []
        producer = self._open_producer()
        producer.partitions(topic)
        outgoing = OutgoingRecords(
            [topic] * len(rows), [queue for queue, _ in stored], [each.timestamp for each in rows],
            [each.key for each in rows], [each.value for each in rows], [each.headers for each in rows],
        )  # fmt: skip
        producer.produce(outgoing, results.append)
        producer.flush(FLUSH_S)
        if not results:
            self._refused.append(f"{topic}: Kafka has not confirmed {len(rows):,} repairs: compare again")
            return 0
        for index, sentence in results[0].sentences.items():
            queue, offset = stored[index]
            self._refused.append(f"{topic} queue {queue} offset {offset:,}: {sentence}")
        return len(rows) - len(results[0].sentences)


def engine_record(topic: bytes, record: KafkaRecord, scope: QueueScope) -> bytes:
    """The record of the engine that stands for one of Kafka. Raises ForeignRecordTooLarge."""
    marks = [parse_copy_mark(value) for name, value in record.headers if name == COPY_HEADER]
    is_own = is_copy_of(scope.log_id, scope.topic_id, record.headers, record.key, record.value)
    headers: Headers = [each for each in record.headers if not (is_own and each[0] == COPY_HEADER)]
    place = RecordPlace(scope.kafka_topic_id, scope.queue, record.offset)
    copied = message_of(topic, place, record.timestamp, record.key, record.value, headers)
    shown, key = message_id(record.headers, place), message_key(record.key)
    mark = marks[0] if is_own else None
    offset = mark.offset if mark is not None else record.offset
    repair = RepairMark(scope.kafka_topic_id, is_own, offset, repair_hash(shown, key, record.value or b""))
    message = decode_struct(Message, copied.encoded)
    message.properties = {**(message.properties or {}), REPAIR_NAME: repair.encode().decode()}
    return encode_record(encode_struct(message), copied.assigned_id or b"")


def kafka_record(stored: StoredRecord, stored_at_ms: int, offset: int, scope: QueueScope) -> KafkaRecord:
    """The record of Kafka that stands for a message of the engine. A copied message gets back what the copy has bent."""
    message_key_bytes, body, headers = record_of(stored.message, stored.assigned_id or None, allows_reserved=True)
    place = scope.place_of(stored, offset)
    mark = RepairMark(scope.kafka_topic_id, *place, repair_hash(engine_id(stored), message_key_bytes, body)).encode()
    key, value, timestamp = message_key_bytes, body, stored_at_ms
    is_copied = stored.source_offset is not None
    bent = {name: text or b"" for name, text in headers if name in _BENT} if is_copied else {}
    if is_copied:
        headers = [each for each in headers if each[0] not in _BENT]
        headers += decode_headers(bent[HEADERS_PROPERTY]) if HEADERS_PROPERTY in bent else []
        key = base64.b64decode(bent[KEY_PROPERTY]) if KEY_PROPERTY in bent else key
        timestamp = int(bent[TIME_PROPERTY]) if TIME_PROPERTY in bent else NO_TIMESTAMP
    kept: bytes | None = None if NULL_PROPERTY in bent else value
    copy = CopyMark(scope.log_id, scope.topic_id, scope.queue, offset, content_hash(key, kept))
    headers = [*headers, (COPY_HEADER, copy.encode())]
    if all(name != REPAIR_NAME for name, _ in headers):
        headers.append((REPAIR_NAME, mark))
    return KafkaRecord(offset, timestamp, key, kept, headers)


_BENT = (HEADERS_PROPERTY, KEY_PROPERTY, NULL_PROPERTY, TIME_PROPERTY)
