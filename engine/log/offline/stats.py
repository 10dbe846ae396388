"""Log statistics by topic and record kind."""

from collections import Counter
from dataclasses import dataclass, field

from engine.log.format import BATCH_HEADER_SIZE, DIRECTORY_ENTRY, INDEX_ENTRY, KIND_TOPIC, parse_topic, split_records
from engine.log.offline.directory import Directory, SegmentFile
from engine.log.segment.native import SegmentIndex
from engine.log.segment.window_scan import StretchKind, WindowScan


@dataclass
class LogStats:
    """Sums over a directory. `damage` counts stretches that do not verify, a torn tail among them."""

    segments: int = 0
    file_bytes: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    control_batches: int = 0
    damage: int = 0
    damaged_bytes: int = 0
    topics: dict[int, "Counter[str]"] = field(default_factory=dict)
    """By topic id: batches, records, bytes."""


def count(directory: Directory) -> LogStats:
    """Read every byte and count it. Memory grows with the number of topics that have messages."""
    stats = LogStats()
    for segment in directory.segments:
        _count_segment(directory, segment, stats)
    return stats


def _count_segment(directory: Directory, segment: SegmentFile, stats: LogStats) -> None:
    file = directory.open(segment)
    index = SegmentIndex(segment.base, 0)
    scan = WindowScan(directory.batches(), file, segment.base, index)
    stats.segments += 1
    stats.file_bytes += scan.limit
    try:
        for stretch in scan.stretches():
            if stretch.kind is not StretchKind.GOOD:
                stats.damage += 1
                stats.damaged_bytes += stretch.end - stretch.at
            for at in stretch.control:
                size = int.from_bytes(scan.room[at + 4 : at + 8], "little")
                _learn(directory, scan.room[at : at + size])
    finally:
        scan.close()
        file.close()
    _add(stats, index)


def _learn(directory: Directory, batch: bytes) -> None:
    for payload in split_records(batch[BATCH_HEADER_SIZE:]) if batch[10] == KIND_TOPIC else ():
        topic_id, name, _ = parse_topic(payload)
        directory.names[topic_id] = name


def _add(stats: LogStats, index: SegmentIndex) -> None:
    queues, _, body = index.encode()
    split = queues * DIRECTORY_ENTRY.size
    entries = INDEX_ENTRY.iter_unpack(memoryview(body)[split:])
    for topic_id, _, _, batches, _ in DIRECTORY_ENTRY.iter_unpack(memoryview(body)[:split]):
        records = size = 0
        for _ in range(batches):
            _, _, bytes_, held, _ = next(entries)
            records += held
            size += bytes_
        stats.batches += batches
        stats.records += records
        stats.bytes += size
        if topic_id == 0:
            stats.control_batches += batches
            continue
        topic = stats.topics.setdefault(topic_id, Counter())
        topic.update(batches=batches, records=records, bytes=size)
