"""Scan of a mapped segment for recovery: its index, its control batches, and its damage.

Bad bytes before a valid batch are skipped, never cut. The next batch is found at a multiple of 8; its checksum is
seeded with the log's id and the position, so nothing else can pass for one. Tools scan in windows: window_scan.py.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.log.format import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    ID_ENTRY,
    KIND_FIRED,
    KIND_MAX,
    KIND_TIMER,
    SEGMENT_HEADER_SIZE,
    count_records,
    padded,
)
from engine.log.segment.native import BatchReader, IdWindow, SegmentIndex
from engine.log.segment.segment import Segment

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SegmentDamage:
    """Bytes that could not be used. They are left where they are."""

    path: str
    position: int
    bytes_lost: int
    reason: str


@dataclass
class RecoveryScan:
    """Results of a scan beside the index, which the segment has now."""

    last_at: int = 0
    epoch: int = 0
    control: list[bytes] = field(default_factory=list)
    fired: list[tuple[int, int]] = field(default_factory=list)
    """(byte address, size) of batches of messages that had been delayed."""

    damage: list[SegmentDamage] = field(default_factory=list)
    ids: bytes = b""
    """Entries of the batches whose ids were checked."""


def scan_segment(
    batches: BatchReader,
    segment: Segment,
    *,
    is_tail: bool,
    end_before: Callable[[int, int], int | None] = lambda *_: None,
) -> RecoveryScan:
    """Build the segment's index in memory and set its end. Blocks for its size.

    Args:
        is_tail: it is the active segment, so bad bytes after the last valid batch are a torn tail and not damage.
        end_before: returns the next offset of (topic id, queue) as of the segments before this one, None when unknown.
    """
    index = segment.open_index()
    view = memoryview(segment.file.view())
    scan = RecoveryScan()
    ids = IdWindow(segment.header.log_id, 0)
    at = SEGMENT_HEADER_SIZE
    try:
        while True:
            end, control, epoch, last, _ = batches.scan(index, view, at, min(segment.header.size, len(view)))
            scan.epoch = max(scan.epoch, epoch)
            scan.last_at = last or scan.last_at
            scan.ids += ids.collect(view, at, end)
            _sort(scan, view, control)
            following = _next_valid(batches, segment, view, end)
            if following is None:
                break
            scan.damage.append(_take_damaged(segment, index, view, (end, following), end_before))
            at = following
        segment.end_at = end
        index.checked = len(scan.ids) // ID_ENTRY.size
        if not is_tail and any(view[end : end + BATCH_HEADER_SIZE]):
            scan.damage.append(report(segment, end, 0, "the end of a full segment does not verify"))
    finally:
        view.release()
    return scan


def is_empty(batches: BatchReader, segment: Segment) -> bool:
    """Whether the segment holds no valid batch at all."""
    if segment.file.next_data(SEGMENT_HEADER_SIZE) is None:
        return True
    view = memoryview(segment.file.view())
    try:
        return _next_valid(batches, segment, view, SEGMENT_HEADER_SIZE) is None
    finally:
        view.release()


def report(segment: Segment, at: int, size: int, reason: str) -> SegmentDamage:
    """Log the damage and return it."""
    logger.error("file=%s position=%d: %d bytes lost: %s", segment.path, segment.base + at, size, reason)
    return SegmentDamage(segment.path, segment.base + at, size, reason)


def _sort(scan: RecoveryScan, view: memoryview, addresses: list[int]) -> None:
    """Copy control batches. Delayed messages stay in the file: the timers read them, and they may be large."""
    for at in addresses:
        kind = view[at + 10]
        if kind == KIND_FIRED:
            scan.fired.append((at, _size(view, at)))
        elif kind != KIND_TIMER:
            scan.control.append(bytes(view[at : at + _size(view, at)]))


def _size(view: memoryview, at: int) -> int:
    return int.from_bytes(view[at + 4 : at + 8], "little")


def _next_valid(batches: BatchReader, segment: Segment, view: memoryview, at: int) -> int | None:
    """Address of the first valid batch from the bad bytes at `at` on. The unwritten end of the file is not read."""
    data = segment.file.next_data(at) if at < len(view) else None
    if data is None or data >= len(view):
        return None
    return batches.find_next(view, segment.base, max(at, data & ~7), len(view))


def _take_damaged(
    segment: Segment,
    index: SegmentIndex,
    view: memoryview,
    place: tuple[int, int],
    end_before: Callable[[int, int], int | None],
) -> SegmentDamage:
    """Report the bad bytes. Where their header still fits exactly, index them, so that reads report the damage.

    Otherwise the queue's next record would get the offset of the lost one whenever the lost one was its last.
    """
    at, following = place
    _, size, magic, kind, _, _, topic_id, queue, count, _, base_offset, stored_at_ms = BATCH_HEADER.unpack_from(
        view, at
    )
    expected = index.next_offset(topic_id, queue)
    if expected is None:
        expected = end_before(topic_id, queue)
    fits = magic == BATCH_MAGIC and kind <= KIND_MAX and size > BATCH_HEADER_SIZE and at + padded(size) == following
    if fits and base_offset == expected and count == count_records(view[at : at + size]):
        index.add_entry(topic_id, queue, base_offset, at, size, count, stored_at_ms)
        return report(
            segment, at, following - at, f"topic={topic_id} queue={queue} offsets={base_offset}..{base_offset + count}"
        )
    return report(segment, at, following - at, "the header of the batch does not verify either")
