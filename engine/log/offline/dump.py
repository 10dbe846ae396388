"""The log's batches, and their records, in the order in which they were stored."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from common.wire.names import find_names
from engine.log.format import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    KIND_TOPIC,
    SOURCE_OFFSET_SIZE,
    padded,
    parse_topic,
    split_records,
)
from engine.log.offline.directory import Directory, SegmentFile
from engine.log.segment.native import SegmentIndex
from engine.log.segment.window_scan import Stretch, StretchKind, WindowScan
from engine.log.write.copied_state import is_copied

KINDS = ("messages", "topic", "progress", "epoch")
Row = dict[str, Any]


@dataclass(frozen=True)
class DumpQuery:
    """Selection of rows. `start`: first offset of each queue; `records`: one row per record instead of per batch."""

    topic: str | None = None
    queue: int | None = None
    start: int = 0
    limit: int | None = None
    records: bool = False


def dump(directory: Directory, wanted: DumpQuery) -> Iterator[Row]:
    """One row per batch or record that verifies, and one with `damage` per stretch that does not."""
    left = wanted.limit if wanted.limit is not None else -1
    for segment in directory.segments:
        for row in _segment(directory, segment, wanted):
            if left == 0:
                return
            left -= 1
            yield row


def _segment(directory: Directory, segment: SegmentFile, wanted: DumpQuery) -> Iterator[Row]:
    file = directory.open(segment)
    scan = WindowScan(directory.batches(), file, segment.base, SegmentIndex(segment.base, 0))
    try:
        for stretch in scan.stretches():
            if stretch.kind is StretchKind.GOOD:
                yield from _stretch(directory, segment, scan, stretch, wanted)
            else:
                yield {
                    "damage": stretch.kind.value, "file": segment.path, "position": segment.base + stretch.at,
                    "bytes": stretch.end - stretch.at,
                }  # fmt: skip
    finally:
        scan.close()
        file.close()


def _stretch(
    directory: Directory, segment: SegmentFile, scan: WindowScan, stretch: Stretch, wanted: DumpQuery
) -> Iterator[Row]:
    at = stretch.at
    while at < stretch.end:
        fields = BATCH_HEADER.unpack_from(scan.room, at)
        _, size, _, kind, _, epoch, topic_id, queue, count, number, first, stored_at_ms = fields
        if kind == KIND_TOPIC:
            _learn(directory, scan.room[at : at + size])
        name = directory.topic_name(topic_id) if topic_id else None
        if _is_wanted(wanted, name, queue, topic_id, first + count):
            batch = {
                "position": segment.base + at, "kind": KINDS[kind] if kind < len(KINDS) else str(kind), "topic": name,
                "topic_id": topic_id, "queue": queue, "offset": first, "records": count, "size": size, "epoch": epoch,
                "stored_at_ms": stored_at_ms,
            }  # fmt: skip
            if is_copied(scan.room[at : at + BATCH_HEADER_SIZE]):
                batch["source"] = number
            yield from _records(scan.room[at : at + size], batch, wanted) if wanted.records else (batch,)
        at += padded(size)


def _is_wanted(wanted: DumpQuery, name: str | None, queue: int, topic_id: int, end: int) -> bool:
    if wanted.topic is not None and name != wanted.topic:
        return False
    if wanted.queue is not None and (queue != wanted.queue or not topic_id):
        return False
    return end > wanted.start


def _records(batch: bytes, of: Row, wanted: DumpQuery) -> Iterator[Row]:
    """One row per record. An id that the proxy assigned is in the record's head; it is shown as 32 hex characters."""
    at = BATCH_HEADER_SIZE
    for offset in range(of["offset"], of["offset"] + of["records"]):
        size = int.from_bytes(batch[at : at + 4], "little")
        assigned = batch[at + 5 : at + 21].hex() if batch[at + 4] & 1 else None
        end = at + 4 + size
        message_end = end - SOURCE_OFFSET_SIZE if "source" in of else end
        payload = batch[at + (21 if assigned else 5) : message_end]
        copied = {"source": of["source"], "source_offset": _u64(batch[message_end:end])} if "source" in of else {}
        at = end
        if offset >= wanted.start:
            id_, key = find_names(payload) if of["kind"] == KINDS[0] else (None, None)
            yield {
                "position": of["position"], "kind": of["kind"], "topic": of["topic"], "topic_id": of["topic_id"],
                "queue": of["queue"], "offset": offset, "stored_at_ms": of["stored_at_ms"],
                "id": assigned or _text(id_), "key": _text(key), "size": len(payload), **copied,
            }  # fmt: skip


def _u64(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _text(name: bytes | None) -> str | None:
    """Name as readable text: a log may hold bytes that no proxy has checked."""
    return None if name is None else name.decode(errors="replace")


def _learn(directory: Directory, batch: bytes) -> None:
    for payload in split_records(batch[BATCH_HEADER_SIZE:]):
        topic_id, name, _ = parse_topic(payload)
        directory.names[topic_id] = name
