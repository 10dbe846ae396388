"""Scan of a segment for recovery: its index, its control batches, and its damage.

Bad bytes before a valid batch are skipped, never cut. The next batch is found at a multiple of 8; its checksum is
seeded with the log's id and the position, so nothing else can pass for one. Tools scan in windows: window_scan.py.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from mmap import mmap

from engine.errors import CorruptionError
from engine.log.format import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    END_UNKNOWN,
    ID_ENTRY,
    KIND_FIRED,
    KIND_MAX,
    KIND_MESSAGES,
    KIND_TIMER,
    NOT_BEGUN,
    SOURCE_OFFSET_SIZE,
    count_records,
    padded,
)
from engine.log.segment.last_batch import NO_BATCH, LastBatch
from engine.log.segment.native import BatchReader, IdWindow, SegmentIndex
from engine.log.segment.segment import Segment
from engine.log.segment.window_scan import SECTOR, Stretch, StretchKind, WindowScan
from engine.log.types import QueueEnd

FIRST_WINDOW_BYTES = 64 << 10
RECORD_BYTES_MIN = 6
"""Size, flags, and the stop byte of an empty message."""

TOPIC_BYTES_MIN = 14
"""Size, flags, id, number of queues, and one byte of a name: the shortest record of a topic."""

TOPICS_LOST_MAX = 1 << 20
"""Most topics that are supposed to have been created in the lost bytes of one segment, so that ids do not run out."""

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

    last: LastBatch = NO_BATCH
    epoch: int = 0
    control: list[bytes] = field(default_factory=list)
    fired: list[tuple[int, int]] = field(default_factory=list)
    """(byte address, size) of batches of messages that had been delayed."""

    copied: list[tuple[int, bytes]] = field(default_factory=list)
    """(byte address, header and last source offset) of batches of copied records."""

    damage: list[SegmentDamage] = field(default_factory=list)
    headers_lost: bool = False
    """Whether batches are lost of which no header tells the queue."""
    raised: list[QueueEnd] = field(default_factory=list)
    """Ends of queues that have no other batch in the segment than the lost one."""
    first_lost: list[QueueEnd] = field(default_factory=list)
    """The same, if the topic exists: its record may be in the segment, too. See `raise_first`."""
    is_unread: bool = False
    """Whether the disk could not read a part of it now: an index of this scan may lack batches that are there."""
    ids: bytes = b""
    """Entries of the batches whose ids were checked."""

    def topics_lost_max(self, end_bytes: int) -> int:
        """Most topics whose record may be in lost bytes without a header. `end_bytes`: those after the last batch."""
        return min(self._bytes_lost(end_bytes) // TOPIC_BYTES_MIN, TOPICS_LOST_MAX)

    def records_unread_max(self, end_bytes: int) -> int:
        """Most records in bytes without a header that the disk may be able to read again. `end_bytes`: as above."""
        return self._bytes_lost(end_bytes) // RECORD_BYTES_MIN if self.is_unread else 0

    def _bytes_lost(self, end_bytes: int) -> int:
        return sum(each.bytes_lost for each in self.damage) + end_bytes if self.headers_lost else 0


def scan_segment(
    batches: BatchReader,
    segment: Segment,
    *,
    is_tail: bool,
    ends_at: int = END_UNKNOWN,
    end_before: Callable[[int, int], int | None] = lambda *_: None,
    again: Callable[[], bool] = lambda: False,
) -> RecoveryScan:
    """Build the segment's index in memory and set its end. Blocks for its size.

    Args:
        is_tail: it is the active segment, so bad bytes after the last valid batch are a torn tail and not damage.
        ends_at: address of its end, as the header of the next segment has it.
        end_before: returns the next offset of (topic id, queue) as of the segments before this one, None when unknown.
        again: see WindowScan.
    """
    _complete_header(batches, segment)
    index, found, ids = segment.open_index(), RecoveryScan(), IdWindow(segment.header.log_id, 0)
    scan = WindowScan(batches, segment.file, segment.base, index, again=again)
    scan.limit = min(scan.limit, segment.header.size)
    collected = []
    try:
        for stretch in scan.stretches():
            if stretch.kind is StretchKind.GOOD:
                collected.append(ids.collect(scan.room, stretch.at, stretch.end))
                _sort(found, scan.room, stretch.control)
                head = BATCH_HEADER.unpack_from(scan.room, scan.last_at)
                found.last = LastBatch(scan.last_at, head[0], head[11])
            elif stretch.kind is StretchKind.BAD:
                damage, has_header = _take_damaged(found, segment, index, scan, stretch, end_before)
                found.damage.append(damage)
                found.headers_lost = found.headers_lost or not has_header
            elif not is_tail:
                found.damage.append(_take_end(found, segment, index, scan, stretch, end_before))
                found.headers_lost = True
    finally:
        scan.close()
    segment.end_at, found.epoch = scan.end_at, scan.epoch
    found.raised = [each for each in found.raised if index.first_offset(*each[:2]) is None]
    found.ids = b"".join(collected)
    index.checked = len(found.ids) // ID_ENTRY.size
    _take_unread(found, segment, scan, is_tail)
    _take_missing(found, segment, END_UNKNOWN if is_tail else ends_at)
    return found


def _complete_header(batches: BatchReader, segment: Segment) -> None:
    if segment.is_header_made and (created_ms := first_stored_ms(batches, segment)) is not None:
        segment.set_created(created_ms)


def _take_missing(found: RecoveryScan, segment: Segment, ends_at: int) -> None:
    """Report a missing end, unless bad bytes or unread sectors there are reported already."""
    if any(each.position >= segment.base + segment.end_at for each in found.damage):
        return
    lost = missing_end(segment, ends_at)
    found.damage += lost
    found.headers_lost = found.headers_lost or bool(lost)


def missing_end(segment: Segment, ends_at: int) -> list[SegmentDamage]:
    """Report batches that are missing at the end of a full segment: nothing but zeros follow its last whole batch.

    A power cut may take them and leave the next segment's bytes, as the segment is synced after the roll. If it took the
    beginning of the next segment, too, nothing tells the end.

    Args:
        ends_at: see `scan_segment`.
    """
    if ends_at == NOT_BEGUN:
        return [report(segment, segment.end_at, 0, "its end may be lost: so is the beginning of the next segment")]
    if ends_at <= segment.end_at:
        return []
    return [report(segment, segment.end_at, ends_at - segment.end_at, "the end of a full segment is missing")]


def _take_unread(found: RecoveryScan, segment: Segment, scan: WindowScan, is_tail: bool) -> None:
    """Report sectors after the last batch that the disk cannot read. Raises CorruptionError if batches may lie there."""
    found.is_unread = bool(scan.unreadable)
    unread = [at for at in scan.unreadable if at >= scan.end_at]
    if is_tail:
        _check_end(segment, scan, unread)
    if unread:
        found.damage.append(report(segment, unread[0], SECTOR * len(unread), "the end cannot be read"))
        found.headers_lost = found.headers_lost or not is_tail


def _check_end(segment: Segment, scan: WindowScan, unread: list[int]) -> None:
    """Raise CorruptionError if batches may go on in unread sectors after the last batch of the log.

    Cutting it would drop what was acknowledged and use its offsets again. The next start may be able to read it.
    """
    if unread and _may_go_on(segment, scan.end_at, unread[0]):
        raise CorruptionError(
            segment.path,
            segment.base + unread[0],
            SECTOR * len(unread),
            "the disk cannot read the end of the log: start again, or move the directory to a sound disk",
        )


def _may_go_on(segment: Segment, end_at: int, unread_at: int) -> bool:
    """Whether batches may go on in the sector at `unread_at`: the bytes at the end, before it, are not known as zero."""
    if unread_at < end_at + BATCH_HEADER_SIZE:
        return True
    try:
        return any(segment.file.read_at(BATCH_HEADER_SIZE, end_at))
    except OSError:
        return True


def is_empty(batches: BatchReader, segment: Segment, again: Callable[[], bool]) -> bool:
    """Whether the last segment holds no valid batch at all.

    Args:
        again: see WindowScan.
    Raises:
        CorruptionError: the disk cannot read its beginning. A segment before it, which would be the last one if it is
            empty, must not be taken for full until that is known.
    """
    scan = WindowScan(batches, segment.file, segment.base, SegmentIndex(segment.base, 0), again=again)
    try:
        first = next(scan.stretches(), None)
        if first is not None and first.kind is not StretchKind.TAIL:
            return False
        _check_end(segment, scan, scan.unreadable)
        return True
    finally:
        scan.close()


def first_stored_ms(batches: BatchReader, segment: Segment) -> int | None:
    """Time at which the segment's first whole batch was stored; None: it has none. No entry of its index is earlier."""
    scan = WindowScan(
        batches, segment.file, segment.base, SegmentIndex(segment.base, 0), window_bytes=FIRST_WINDOW_BYTES
    )
    try:
        for stretch in scan.stretches():
            if stretch.kind is StretchKind.GOOD:
                stored_ms: int = BATCH_HEADER.unpack_from(scan.room, stretch.at)[11]
                return stored_ms
        return None
    finally:
        scan.close()


def report(segment: Segment, at: int, size: int, reason: str) -> SegmentDamage:
    """Log the damage and return it."""
    logger.error("file=%s position=%d: %d bytes lost: %s", segment.path, segment.base + at, size, reason)
    return SegmentDamage(segment.path, segment.base + at, size, reason)


def _sort(scan: RecoveryScan, view: mmap, addresses: list[int]) -> None:
    """Copy control batches. Delayed messages stay in the file: the timers read them, and they may be large.

    Of copied batches only header and last source offset are taken.
    """
    for at in addresses:
        kind, end = view[at + 10], at + _size(view, at)
        if kind == KIND_MESSAGES:
            scan.copied.append((at, view[at : at + BATCH_HEADER_SIZE] + view[end - SOURCE_OFFSET_SIZE : end]))
        elif kind == KIND_FIRED:
            scan.fired.append((at, end - at))
        elif kind != KIND_TIMER:
            scan.control.append(bytes(view[at:end]))


def _expected(
    index: SegmentIndex, topic_id: int, queue: int, end_before: Callable[[int, int], int | None]
) -> int | None:
    offset = index.next_offset(topic_id, queue)
    return end_before(topic_id, queue) if offset is None else offset


def _raise_end(
    found: RecoveryScan,
    index: SegmentIndex,
    scan: WindowScan,
    at: int,
    end: int,
    end_before: Callable[[int, int], int | None],
) -> None:
    """Have the queue continue after the lost batch whose header is at `at`, if the header names its place in the queue.

    The header may be sound, but says no more than the queue and how many records there may be.
    """
    _, size, magic, _, _, _, topic_id, queue, count, _, base_offset, _ = BATCH_HEADER.unpack_from(scan.room, at)
    if magic != BATCH_MAGIC or not BATCH_HEADER_SIZE < size <= end - at:
        return
    expected = _expected(index, topic_id, queue, end_before)
    next_offset = base_offset + min(count, (size - BATCH_HEADER_SIZE) // RECORD_BYTES_MIN)
    if base_offset == expected:
        index.raise_next(topic_id, queue, next_offset)
        found.raised.append((topic_id, queue, next_offset))
    elif expected is None and base_offset == 0:
        found.first_lost.append((topic_id, queue, next_offset))


def raise_first(index: SegmentIndex, found: RecoveryScan, end_before: Callable[[int, int], int | None]) -> None:
    """Raise the ends of queues whose first batch is lost, of topics that became known by the scan itself."""
    for topic_id, queue, next_offset in found.first_lost:
        if _expected(index, topic_id, queue, end_before) == 0:
            index.raise_next(topic_id, queue, next_offset)
            found.raised.append((topic_id, queue, next_offset))


def _take_end(
    found: RecoveryScan,
    segment: Segment,
    index: SegmentIndex,
    scan: WindowScan,
    stretch: Stretch,
    end_before: Callable[[int, int], int | None],
) -> SegmentDamage:
    """Report bad bytes after the last batch of a full segment. The first of them may still be a header."""
    if stretch.end - stretch.at >= BATCH_HEADER_SIZE:
        _raise_end(found, index, scan, stretch.at, segment.header.size, end_before)
    why = _unread_in(scan, stretch.at, segment.header.size)
    return report(segment, stretch.at, stretch.end - stretch.at, why + "the end of a full segment does not verify")


def _unread_in(scan: WindowScan, at: int, end: int) -> str:
    """The beginning of a reason: how many sectors of the bytes cannot be read; empty when all can."""
    unread = sum(at <= sector < end for sector in scan.unreadable)
    return f"{unread} sectors cannot be read: " if unread else ""


def _size(view: mmap, at: int) -> int:
    return int.from_bytes(view[at + 4 : at + 8], "little")


def _take_damaged(
    found: RecoveryScan,
    segment: Segment,
    index: SegmentIndex,
    scan: WindowScan,
    stretch: Stretch,
    end_before: Callable[[int, int], int | None],
) -> tuple[SegmentDamage, bool]:
    """Report the bad bytes; also whether their header tells all that is lost.

    Where it still fits exactly, they are indexed, so that reads report the damage.

    Otherwise the queue's next record would get the offset of the lost one whenever the lost one was its last.
    """
    _, at, following, _ = stretch
    why = _unread_in(scan, at, following)
    _, size, magic, kind, _, _, topic_id, queue, count, _, base_offset, stored_at_ms = BATCH_HEADER.unpack_from(
        scan.room, at
    )
    expected = _expected(index, topic_id, queue, end_before)
    fits = magic == BATCH_MAGIC and kind <= KIND_MAX and size > BATCH_HEADER_SIZE and at + padded(size) == following
    if fits and base_offset == expected and count == count_records(scan.room[at : at + size]):
        index.add_entry(topic_id, queue, base_offset, at, size, count, stored_at_ms)
        reason = f"topic={topic_id} queue={queue} offsets={base_offset}..{base_offset + count}"
        return report(segment, at, following - at, why + reason), True
    _raise_end(found, index, scan, at, following, end_before)
    return report(segment, at, following - at, why + "the header of the batch does not verify either"), False
