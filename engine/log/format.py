"""The bytes of segments, batches, control records and index files. Little-endian; described in docs/format/log.md."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from google_crc32c import value

from engine.errors import VersionError
from engine.link.batch import BATCH_HEADER, BATCH_HEADER_SIZE, BATCH_MAGIC

SEGMENT_MAGIC = b"PNSTLOG1"
SEGMENT_HEADER = struct.Struct("<8s16sQIIqI8sI")
SEGMENT_HEADER_SIZE = 64
END_UNKNOWN, NOT_BEGUN = 0, 0xFFFFFFFF
"""Of the end of the segment before: not known; nothing was appended here when the header was written."""

KIND_MESSAGES, KIND_TOPIC, KIND_PROGRESS = range(3)
KIND_COUNTERS = 4
KIND_TIMER, KIND_TIMER_MARK = 8, 9
KIND_FIRED = 10
"""Messages of a topic that had been delayed; in everything else like MESSAGES."""

KIND_MAX = 15
FLAG_CHECK_IDS = 1
"""Flag of a batch: it holds one message, which is not stored when the topic received its id within the window."""
FLAG_COPIED = 2
"""Flag of a batch of records that were copied from a foreign source. It excludes the other flag."""
CONTROL_TOPIC_ID = 0
"""Control batches form queues of topic id 0, with queue = kind, so indexes and offsets treat them as any other."""

INDEX_MAGIC = b"PNSTIDX1"
INDEX_HEADER = struct.Struct("<8s16sQQqIIIIIIII")
DIRECTORY_ENTRY = struct.Struct("<IIIIQ")
INDEX_ENTRY = struct.Struct("<QIIII")

ID_MAGIC = b"PNSTDUP1"
ID_HEADER = struct.Struct("<8s16sQIIIIII")
ID_ENTRY = struct.Struct("<16sQII")
"""Per message whose id was checked: hash ‖ offset ‖ queue ‖ Unix second from which on the id is forgotten."""

CODE_CLAIMED = 210
CODE_OK, CODE_DUPLICATE, CODE_INVALID, CODE_TOO_LARGE, CODE_UNKNOWN_TOPIC, CODE_NO_ROOM = 0, 2, 100, 101, 102, 205
APPENDED = struct.Struct("<HxxIQ")
"""Result per batch: code ‖ queue (of a DUPLICATE's first copy, of a CLAIMED id, else 0) ‖ base offset."""

OFFSET_END = 0xFFFFFFFFFFFFFFFF
"""Above every offset."""
TRAILER_SIZE, SOURCE_OFFSET_SIZE = 40, 8
_RECORD = struct.Struct("<IB")
_TOPIC = struct.Struct("<II")
_KEY_SIZE = struct.Struct("<H")
_COUNTER = struct.Struct("<IIQ")
_TIMER_MARK = struct.Struct("<QQ")


def padded(size: int) -> int:
    """The size including the zero bytes that align the next batch to 8."""
    return (size + 7) & ~7


@dataclass(frozen=True)
class SegmentHeader:
    """The first 64 bytes of a segment file.

    Attributes:
        epoch: the writer's at the time the file was made.
        previous_end: byte address after the last batch of the segment before; END_UNKNOWN or NOT_BEGUN.
    """

    log_id: bytes
    base: int
    epoch: int
    size: int
    created_ms: int
    previous_end: int = END_UNKNOWN

    def pack(self) -> bytes:
        """The bytes, checksum included."""
        head = SEGMENT_HEADER.pack(
            SEGMENT_MAGIC,
            self.log_id,
            self.base,
            self.epoch,
            self.size,
            self.created_ms,
            self.previous_end,
            bytes(8),
            0,
        )[:60]
        return head + value(head).to_bytes(4, "little")


def parse_segment_header(data: bytes, path: str) -> SegmentHeader | None:
    """The header, or None when the bytes are damaged.

    Raises VersionError when they are sound but of another version.
    """
    if len(data) < SEGMENT_HEADER_SIZE or value(data[:60]) != int.from_bytes(data[60:64], "little"):
        return None
    magic, log_id, base, epoch, size, created_ms, previous_end, _, _ = SEGMENT_HEADER.unpack(data[:SEGMENT_HEADER_SIZE])
    if magic != SEGMENT_MAGIC:
        raise VersionError(f"{path} has format {magic!r}, this version reads {SEGMENT_MAGIC!r}; use a newer Penstock")
    return SegmentHeader(log_id, base, epoch, size, created_ms, previous_end)


def segment_name(base: int) -> str:
    """File name of the segment whose first byte has that position."""
    return f"{base:020d}.seg"


def pack_record(payload: bytes, assigned_id: bytes = b"") -> bytes:
    """One record, with a 16-byte assigned id or none."""
    return _RECORD.pack(1 + len(assigned_id) + len(payload), 1 if assigned_id else 0) + assigned_id + payload


def pack_batch(kind: int, topic_id: int, queue: int, records: Iterable[bytes]) -> bytes:
    """A batch as a writer passes it to the log: epoch, offset, time and checksum zero, padded to a multiple of 8."""
    parts = list(records)
    body = b"".join(parts)
    size = BATCH_HEADER_SIZE + len(body)
    header = BATCH_HEADER.pack(0, size, BATCH_MAGIC, kind, 0, 0, topic_id, queue, len(parts), 0, 0, 0)
    return header + body + bytes(padded(size) - size)


def whole_records(records: bytes) -> Iterator[bytes]:
    """The records of a slice one by one, each with its size first."""
    at = 0
    while at < len(records):
        end = at + 4 + _RECORD.unpack_from(records, at)[0]
        yield records[at:end]
        at = end


def split_records(records: bytes) -> Iterator[bytes]:
    """Per record the bytes after its flags and id, with its trailer if it has one."""
    at = 0
    while at < len(records):
        size, flags = _RECORD.unpack_from(records, at)
        yield records[at + (21 if flags & 1 else 5) : at + 4 + size]
        at += 4 + size


def count_records(batch: bytes | memoryview) -> int:
    """Records in the batch, or -1 when their sizes do not add up or one with a trailer is not alone."""
    at, count = BATCH_HEADER_SIZE, 0
    while at < len(batch):
        if len(batch) - at < 6:
            return -1
        size, flags = _RECORD.unpack_from(batch, at)
        # At least a flags byte and a struct's stop byte, after the id when there is one.
        if size > len(batch) - at - 4 or flags > 3 or size < 2 + 16 * (flags & 1) + TRAILER_SIZE * (flags >> 1):
            return -1
        if flags & 2 and (count or at + 4 + size != len(batch)):
            return -1
        at += 4 + size
        count += 1
    return count


def count_copied(batch: bytes | memoryview) -> int:
    """As count_records(), for a batch with the flag "copied": -1 also unless source offsets grow from record to record."""
    at, count, last = BATCH_HEADER_SIZE, 0, -1
    while at < len(batch):
        if len(batch) - at < 6:
            return -1
        size, flags = _RECORD.unpack_from(batch, at)
        if size > len(batch) - at - 4 or flags & ~1 != 4 or size < 2 + 16 * (flags & 1) + SOURCE_OFFSET_SIZE:
            return -1
        at += 4 + size
        offset = int.from_bytes(batch[at - SOURCE_OFFSET_SIZE : at], "little")
        if not last < offset < OFFSET_END:
            return -1
        last = offset
        count += 1
    return count


def pack_topic(topic_id: int, name: str, queues: int) -> bytes:
    """Payload of a TOPIC record; a later one of the same id replaces the number of queues. `name`: the stored name."""
    return _TOPIC.pack(topic_id, queues) + name.encode()


def parse_topic(payload: bytes) -> tuple[int, str, int]:
    """(id, stored name, queues)."""
    topic_id, queues = _TOPIC.unpack_from(payload)
    return topic_id, payload[_TOPIC.size :].decode(), queues


def pack_progress(key: bytes, value: bytes) -> bytes:
    """Payload of a PROGRESS record; an empty value removes the key."""
    return _KEY_SIZE.pack(len(key)) + key + value


def parse_progress(payload: bytes) -> tuple[bytes, bytes]:
    """(key, value)."""
    (size,) = _KEY_SIZE.unpack_from(payload)
    return payload[2 : 2 + size], payload[2 + size :]


def pack_counter(topic_id: int, queue: int, next_offset: int) -> bytes:
    """Payload of a COUNTERS record: where a queue continues whose batches may all be deleted."""
    return _COUNTER.pack(topic_id, queue, next_offset)


def parse_counter(payload: bytes) -> tuple[int, int, int]:
    """(topic id, queue, next offset)."""
    return _COUNTER.unpack_from(payload)


def pack_timer_mark(covered_to: int, base: int, addresses: Iterable[int]) -> bytes:
    """Payload of a TIMER_MARK record: timers of the segment at `base` that have fired, were cancelled or relocated.

    `covered_to`: all fired batches below this position are in marks up to this one; 0 when the mark does not say.
    """
    ended = list(addresses)
    return _TIMER_MARK.pack(covered_to, base) + struct.pack(f"<{len(ended)}I", *ended)


def parse_timer_mark(payload: bytes) -> tuple[int, int, bytes]:
    """(covered to, base, addresses as u32)."""
    return *_TIMER_MARK.unpack_from(payload), payload[_TIMER_MARK.size :]
