"""Rows of 32 bytes per message, the same from a record of Kafka and from the engine's copy of it. Reference of `_rows.pyx`.

    u64 hash of the id ‖ u64 hash of id, key and body ‖ u64 offset, bit 63: a repair ‖ u32 minute ‖ u32 bytes of the body

Big-endian, so that sorting rows as bytes sorts them by id, content and offset. Hashes are SipHash-2-4 with a key of the
comparison, so that nobody can write messages that cancel out. The id is that which clients see. Id and key are those that
the copy has: see `kafka_bridge.copy_in.messages`. A body that is null or unset counts as empty. The minute is that of `penstock-time`, of
the record's timestamp, or for a message of the engine's own of its storing; 0: it has none.
"""

import struct
from typing import NamedTuple

from common.kafka.copy_mark import COPY_HEADER, parse_copy_mark
from common.kafka.records import Headers, Records
from common.kafka.repair_mark import REPAIR_NAME, RepairMark, parse_repair_mark
from common.siphash import siphash_of
from engine.link.record import StoredRecord, read_record
from kafka_bridge.copy_in.messages import TIME_PROPERTY, RecordPlace, message_id, message_key
from kafka_bridge.mapping import fields_of

ROW = struct.Struct(">QQQII")
ROW_SIZE = 32
REPAIRED = 1 << 63
OFFSET_MAX = (1 << 63) - 1
MINUTE_MS, MINUTE_MAX = 60_000, 0xFFFFFFFF
_BODY, _KEY, _ID = 2, 3, 6
_PAIR = struct.Struct("<QQ").unpack
HashKey = tuple[int, int]


class QueueScope(NamedTuple):
    """The messages of one queue that are compared. Both sides have exactly these, if nothing is wrong.

    Attributes:
        kafka_topic_id: 16 bytes.
        log_id, topic_id: of the engine.
        source_first, source_end: Kafka offsets of records that are copied into the engine.
        own_first, own_end: engine offsets of messages that are the engine's own, and are copied to Kafka.
        copied_first: engine offset of the first record of the queue's present source. What was copied before it came from a
            source that is no more, so it is judged as the engine's own.
    """

    kafka_topic_id: bytes
    queue: int
    log_id: str
    topic_id: int
    source_first: int
    source_end: int
    own_first: int
    own_end: int
    copied_first: int = 0

    def place_of(self, record: StoredRecord, offset: int) -> tuple[bool, int]:
        """Whether a message of the engine is judged as its own, and the offset by which it is."""
        if record.source_offset is None or offset < self.copied_first:
            return True, offset
        return False, record.source_offset

    def has(self, is_own: bool, offset: int) -> bool:
        first, end = (self.own_first, self.own_end) if is_own else (self.source_first, self.source_end)
        return first <= offset < end


def rows_of_records(records: Records, scope: QueueScope, key: HashKey) -> bytes:
    """Rows of the fetched records of the scope's partition that are in it."""
    rows = []
    for index, offset in enumerate(records.offsets):
        row = row_of_record(records, index, scope, key)
        if row:
            rows.append(row)
        assert offset <= OFFSET_MAX
    return b"".join(rows)


def row_of_record(records: Records, index: int, scope: QueueScope, key: HashKey) -> bytes:
    """The row of one record; empty: it is not in the scope."""
    offset, headers, value = records.offsets[index], records.headers[index], records.values[index]
    place = RecordPlace(scope.kafka_topic_id, scope.queue, offset)
    record_key, flags = records.keys[index], 0
    shown, own_key = message_id(headers, place), message_key(record_key)
    is_own, at = False, offset
    repair = _repair_in(headers, scope, shown, own_key, value or b"")
    if repair is not None:
        is_own, at, flags = repair.is_own, repair.offset, REPAIRED
    elif (marked := _marked_offset(headers, scope, record_key, value)) is not None:
        is_own, at = True, marked
    if not scope.has(is_own, at):
        return b""
    return _row(shown, own_key, value or b"", offset | flags, records.timestamps[index], key)


def _marked_offset(headers: Headers, scope: QueueScope, key: bytes | None, value: bytes | None) -> int | None:
    """The engine offset in the mark of a record that was copied from the scope's queue, by the copier's own rule."""
    marks = [header for name, header in headers if name == COPY_HEADER]
    mark = parse_copy_mark(marks[0]) if len(marks) == 1 else None
    if mark is None or (mark.log_id, mark.topic_id) != (scope.log_id, scope.topic_id) or not mark.matches(key, value):
        return None
    return mark.offset


def _repair_in(headers: Headers, scope: QueueScope, shown: bytes, key: bytes | None, body: bytes) -> RepairMark | None:
    for name, value in headers:
        mark = parse_repair_mark(value) if name == REPAIR_NAME else None
        if mark is not None and mark.names(scope.kafka_topic_id, shown, key, body):
            return mark
    return None


def rows_of_stored(
    records: bytes, count: int, first_offset: int, stored_at_ms: int, scope: QueueScope, key: HashKey
) -> bytes:
    """Rows of a piece of the engine's records that are in the scope.

    Raises:
        PayloadError: the piece is damaged. WireError, IndexError, struct.error: a record is no message.
    """
    rows, at = [], 0
    for number in range(count):
        record, at = read_record(records, at)
        row = row_of_stored(record, first_offset + number, stored_at_ms, scope, key)
        if row:
            rows.append(row)
    return b"".join(rows)


def row_of_stored(record: StoredRecord, offset: int, stored_at_ms: int, scope: QueueScope, key: HashKey) -> bytes:
    """The row of one record; empty: it is not in the scope."""
    texts, properties = fields_of(record.message)
    shown, own_key, body = (
        _shown_id(record, texts),
        texts.get(_KEY),
        texts.get(_BODY, b""),
    )
    (is_own, at), flags, time_ms = scope.place_of(record, offset), 0, stored_at_ms
    if (
        record.source_offset is None
        and (mark := parse_repair_mark(properties.get(REPAIR_NAME.encode()))) is not None
        and mark.names(scope.kafka_topic_id, shown, own_key, body)
    ):
        is_own, at, flags = mark.is_own, mark.offset, REPAIRED
    if not scope.has(is_own, at):
        return b""
    if record.source_offset is not None or flags:
        time_ms = _time_in(properties)
    return _row(shown, own_key, body, offset | flags, time_ms, key)


def _shown_id(record: StoredRecord, texts: dict[int, bytes]) -> bytes:
    return record.assigned_id.hex().encode() if record.assigned_id else texts.get(_ID, b"")


def _time_in(properties: dict[bytes, bytes]) -> int:
    text = properties.get(TIME_PROPERTY.encode(), b"")
    return int(text) if text.isdigit() else -1


def _row(shown: bytes, key: bytes | None, body: bytes, offset: int, time_ms: int, hash_key: HashKey) -> bytes:
    k0, k1 = hash_key
    low, high = _PAIR(siphash_of(k0, k1, shown))
    if key is not None:
        key_low, key_high = _PAIR(siphash_of(k0, k1 ^ 1, key))
    else:
        key_low, key_high = k0, k1
    content, _ = _PAIR(siphash_of(low ^ key_low, high ^ key_high, body))
    minute = min(max(time_ms, 0) // MINUTE_MS, MINUTE_MAX)
    return ROW.pack(low, content, offset, minute, len(body))
