"""Checks every byte of one segment, and its index file against its contents."""

from dataclasses import dataclass, field

from engine.errors import CorruptionError
from engine.log.format import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    DIRECTORY_ENTRY,
    INDEX_ENTRY,
    INDEX_HEADER,
    KIND_MESSAGES,
    SOURCE_OFFSET_SIZE,
    count_records,
    padded,
)
from engine.log.offline.directory import Directory, SegmentFile
from engine.log.segment.index_file import load_index
from engine.log.segment.native import SealedIndex, SegmentIndex
from engine.log.segment.segment import Segment
from engine.log.segment.window_scan import Stretch, StretchKind, WindowScan

Batch = tuple[int, int, int, int, int]
"""Topic id, queue, first offset, address, records."""


@dataclass
class Lost:
    """Bytes of a segment that do not verify."""

    kind: StretchKind
    at: int
    end: int
    records: int | None = None
    batches: list[Batch] = field(default_factory=list)
    """Batches that were here, by the index file."""

    def describe(self) -> str:
        """The records that were here, as far as known."""
        if self.batches:
            named = [f"topic={t} queue={q} offsets={first}..{first + count}" for t, q, first, _, count in self.batches]
            more = f" and {len(named) - 3} more batches" if len(named) > 3 else ""
            return ", ".join(named[:3]) + more
        if self.kind is StretchKind.MISSING:
            return "the end of the segment is missing, by the header of the next one"
        return "the header of the batch does not verify either" if self.records is None else "does not verify"


@dataclass
class Checked:
    """Contents of a segment."""

    index: SegmentIndex
    created_ms: int
    end_at: int = 0
    last_at: int = 0
    batches: int = 0
    records: int = 0
    good_bytes: int = 0
    lost: list[Lost] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    control: list[tuple[int, bytes]] = field(default_factory=list)
    """(address, batch) of the control batches; of copied batches header and last source offset."""
    index_fault: str = ""
    """Fault of the index file; empty when it has none."""
    directory: SealedIndex | None = None
    """The index as it should be by the segment."""


def check_segment(directory: Directory, segment: SegmentFile, *, sealed: bool) -> Checked:
    """Read the segment from end to end. Blocks. Raises OSError only when it cannot be opened."""
    file = directory.open(segment)
    try:
        opened = Segment(segment.path, segment.header, file)
        fault, created_ms, body, entries = _load(directory, opened) if sealed else ("", 0, b"", 0)
        checked = Checked(SegmentIndex(segment.base, created_ms), created_ms, index_fault=fault)
        scan = WindowScan(directory.batches(), file, segment.base, checked.index)
        for stretch in scan.stretches():
            _take(checked, scan, stretch)
        checked.end_at, checked.last_at, checked.unreadable = scan.end_at, scan.last_at, scan.unreadable
        scan.close()
        _compare(checked, segment.base, body if not fault and sealed else None, entries)
    finally:
        file.close()
    return checked


def _load(directory: Directory, segment: Segment) -> tuple[str, int, bytes, int]:
    """(fault of the index file, the segment's creation time, the file's body, its number of entries)."""
    path = segment.path.removesuffix(".seg") + ".idx"
    created_ms = segment.header.created_ms
    try:
        load_index(directory.env, segment)
        file = directory.env.open(path)
        data = file.read_at(file.size(), 0)
        file.close()
    except CorruptionError as error:
        return str(error).partition(" bytes lost: ")[2], created_ms, b"", 0
    except OSError as error:
        return f"it cannot be read: {error.strerror}", created_ms, b"", 0
    # The entries' times are relative to it. It is not the segment's if that had to be made up.
    fields = INDEX_HEADER.unpack_from(data)
    return "", fields[4], data[INDEX_HEADER.size :], fields[6]


def _take(checked: Checked, scan: WindowScan, stretch: Stretch) -> None:
    if stretch.kind is StretchKind.GOOD:
        checked.good_bytes += stretch.end - stretch.at
        for at in stretch.control:
            end = at + int.from_bytes(scan.room[at + 4 : at + 8], "little")
            if scan.room[at + 10] == KIND_MESSAGES:  # copied: their records may be many
                head = scan.room[at : at + BATCH_HEADER_SIZE]
                checked.control.append((at, head + scan.room[end - SOURCE_OFFSET_SIZE : end]))
            else:
                checked.control.append((at, scan.room[at:end]))
        return
    checked.lost.append(Lost(stretch.kind, stretch.at, stretch.end, _records(scan, stretch)))


def _records(scan: WindowScan, stretch: Stretch) -> int | None:
    """Number of records in the damaged batch, if its header still fits its place exactly."""
    at, end = stretch.at, stretch.end
    if end - at < BATCH_HEADER_SIZE:
        return None
    _, size, magic, _, _, _, _, _, count, _, _, _ = BATCH_HEADER.unpack_from(scan.room, at)
    # A tail ends with its last byte that is not zero, which need not be the batch's last one.
    fits = at + padded(size) == end or (stretch.kind is StretchKind.TAIL and end <= at + size <= len(scan.room))
    return count if magic == BATCH_MAGIC and fits and count == count_records(scan.room[at : at + size]) else None


def _compare(checked: Checked, base: int, body: bytes | None, entry_count: int) -> None:
    """Check the index file against the scan; where they differ, it tells what the damaged bytes were."""
    queues, checked.batches, own = checked.index.encode()
    checked.directory = SealedIndex(base, checked.created_ms, base + checked.end_at, queues, checked.batches, own)
    checked.records = sum(memoryview(own)[queues * DIRECTORY_ENTRY.size :].cast("I")[4::6])
    if body is None or body == own:
        return
    there, listed = set(_batches(own, queues)), set(_batches(body, (len(body) - entry_count * INDEX_ENTRY.size) // 24))
    if there - listed:
        checked.index_fault = f"{len(there - listed)} whole batches of the segment are not in it as they are"
        return
    missing = sorted(listed - there, key=lambda batch: batch[3])
    for lost in checked.lost:
        lost.batches = [batch for batch in missing if lost.at <= batch[3] < lost.end]
        lost.records = sum(batch[4] for batch in lost.batches) if lost.batches else lost.records
    placed = {batch for lost in checked.lost for batch in lost.batches}
    gone = [batch for batch in missing if batch not in placed]
    if gone:
        records = sum(batch[4] for batch in gone)
        checked.lost.append(Lost(StretchKind.TAIL, gone[0][3], gone[-1][3] + BATCH_HEADER_SIZE, records, gone))
    elif not missing:
        checked.index_fault = "its times or its directory are not those of the segment"


def _batches(body: bytes, queues: int) -> list[Batch]:
    entries = list(INDEX_ENTRY.iter_unpack(memoryview(body)[queues * DIRECTORY_ENTRY.size :]))
    return [
        (topic_id, queue, entry[0], entry[1], entry[3])
        for topic_id, queue, first, count, _ in DIRECTORY_ENTRY.iter_unpack(
            memoryview(body)[: queues * DIRECTORY_ENTRY.size]
        )
        for entry in entries[first : first + count]
    ]
