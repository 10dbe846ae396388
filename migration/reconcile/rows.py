"""Rows of 32 bytes per message, the same from a record of Kafka and from the engine's copy of it. Reference of `_rows.pyx`.

    u64 hash of the id ‖ u64 hash of id, key and body ‖ u64 offset, bit 63: a repair ‖ u32 minute ‖ u32 bytes of the body

Big-endian, so that sorting rows as bytes sorts them by id, content and offset. Hashes are SipHash-2-4 with a key of the
comparison, so that nobody can write messages that cancel out. The id is that which clients see. Id and key are those that
the copy has: see `kafka_bridge.copy_in.messages`. A body that is null or unset counts as empty. The minute is that of `penstock-time`, of
the record's timestamp, or for a message of the engine's own of its storing; 0: it has none.
"""

import struct
from collections.abc import Collection, Iterator
from itertools import groupby
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
WINDOW = struct.Struct("<QQQQQQ")
"""Count ‖ bytes of body ‖ XOR of the ids' hashes ‖ XOR of the contents' hashes ‖ lowest offset ‖ highest offset."""

_BODY, _KEY, _ID = 2, 3, 6
_PAIR = struct.Struct("<QQ").unpack
HashKey = tuple[int, int]
KAFKA, ENGINE = 0, 1


class QueueScope(NamedTuple):
    """The messages of one queue that are compared. Both sides have exactly these, if nothing is wrong.

    Attributes:
        kafka_topic_id: 16 bytes.
        log_id, topic_id: of the engine.
        source_first, source_end: Kafka offsets of records that are copied into the engine.
        own_first, own_end: engine offsets of messages that are the engine's own, and are copied to Kafka.
    """

    kafka_topic_id: bytes
    queue: int
    log_id: str
    topic_id: int
    source_first: int
    source_end: int
    own_first: int
    own_end: int

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
    is_own, at, flags, time_ms = True, offset, 0, stored_at_ms
    if record.source_offset is not None:
        is_own, at = False, record.source_offset
    elif (mark := parse_repair_mark(properties.get(REPAIR_NAME.encode()))) is not None and mark.names(
        scope.kafka_topic_id, shown, own_key, body
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


def fold(rows: bytes, windows: dict[int, bytearray]) -> None:
    """Add rows to the windows of their minutes; see WINDOW."""
    for shown, content, offset, minute, size in ROW.iter_unpack(rows):
        window = windows.get(minute)
        if window is None:
            window = windows[minute] = bytearray(WINDOW.pack(0, 0, 0, 0, OFFSET_MAX, 0))
        count, total, ids, contents, lowest, highest = WINDOW.unpack(window)
        at = offset & OFFSET_MAX
        WINDOW.pack_into(
            window, 0, count + 1, total + size, ids ^ shown, contents ^ content, min(lowest, at), max(highest, at)
        )


def chosen(rows: bytes, minutes: Collection[int]) -> bytes:
    """The rows of these minutes."""
    return b"".join(rows[at : at + ROW_SIZE] for at in range(0, len(rows), ROW_SIZE) if _minute(rows, at) in minutes)


def _minute(rows: bytes, at: int) -> int:
    return int.from_bytes(rows[at + 24 : at + 28], "big")


def holding(rows: bytes, ids: Collection[int]) -> bytes:
    """The rows of ids with these hashes."""
    return b"".join(row for row in _split(rows) if int.from_bytes(row[:8], "big") in ids)


def ordered(rows: bytes) -> bytes:
    """The rows by id, content and offset."""
    return b"".join(sorted(_split(rows)))


def _split(rows: bytes) -> Iterator[bytes]:
    return (rows[at : at + ROW_SIZE] for at in range(0, len(rows), ROW_SIZE))


def differing(kafka: bytes, engine: bytes) -> bytes:
    """The rows of the ids whose contents are not the same on both sides, Kafka's first per id.

    The second u32, the size, is replaced by the side: KAFKA or ENGINE. Both arguments are in order.
    """
    found: list[bytes] = []
    sides = [dict(_by_id(kafka)), dict(_by_id(engine))]
    for shown in sorted({*sides[KAFKA], *sides[ENGINE]}):
        rows = [side.get(shown, []) for side in sides]
        if [each[8:16] for each in rows[KAFKA]] != [each[8:16] for each in rows[ENGINE]]:
            found += [each[:28] + side.to_bytes(4, "big") for side in (KAFKA, ENGINE) for each in rows[side]]
    return b"".join(found)


def _by_id(rows: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    return ((shown, list(group)) for shown, group in groupby(_split(rows), key=lambda row: row[:8]))
