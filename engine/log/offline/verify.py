"""Verification of a whole directory."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from engine.log.format import NOT_BEGUN, SEGMENT_HEADER_SIZE
from engine.log.offline.directory import Directory, SegmentFile
from engine.log.offline.finding import DAMAGE, INDEX, LEFTOVER, NOTE, TAIL, TORN_TAIL, VIEW, Finding
from engine.log.offline.lookup_check import lookup_faults
from engine.log.offline.segment_check import Checked, Lost, check_segment
from engine.log.offline.view_check import ViewCheck
from engine.log.segment.native import SegmentIndex
from engine.log.segment.side_files import SIDE_SUFFIXES, side_files
from engine.log.segment.window_scan import SECTOR, StretchKind, WindowScan


@dataclass
class Totals:
    """Totals of the bytes read and of the bad ones among them."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    """Size of the segment files, unused ends included."""
    damage: int = 0
    torn_tail_bytes: int = 0


class Verification:
    """One verification of one directory. Memory is bounded by one segment's index and the keys of progress.

    Args:
        report: called with each finding as it is made.
    """

    def __init__(self, directory: Directory, report: Callable[[Finding], None]) -> None:
        self._directory, self._tell = directory, report
        self.totals = Totals()

    def run(self) -> Totals:
        """Read everything. Blocks."""
        directory = self._directory
        view = ViewCheck(directory, self._report)
        current = open_segment_of(directory)
        following: SegmentFile | None
        for segment, following in zip_longest(directory.segments, directory.segments[1:]):
            self._header(segment)
            if segment.base <= current:
                checked = check_segment(directory, segment, sealed=segment.base < current)
                if segment.base < current:
                    _add_missing_end(checked, segment, following)
                self._segment(segment, checked, is_open=segment.base == current)
                for at, batch in checked.control:
                    view.control(segment.base + at, batch)
                if not checked.lost and checked.directory is not None and segment.base < current:
                    view.queues(segment.base, checked.directory)
            else:
                self._prepared(segment)
        self._order(current)
        self._strays()
        view.finish()
        return self.totals

    def _report(self, finding: Finding) -> None:
        if finding.what == DAMAGE:
            self.totals.damage += 1
        elif finding.what == TORN_TAIL:
            self.totals.torn_tail_bytes += finding.bytes
        self._tell(finding)

    def _found(
        self, what: str, segment: SegmentFile, at: int, size: int, records: int | None, reason: str, mend: str = ""
    ) -> None:
        mend = TAIL if what == TORN_TAIL else mend
        self._report(Finding(what, segment.path, segment.base + at, size, records, reason, mend))

    def _header(self, segment: SegmentFile) -> None:
        self.totals.segments += 1
        if not segment.sound:
            self._found(
                DAMAGE, segment, 0, SEGMENT_HEADER_SIZE, 0,
                "the segment's header does not verify or is another log's; its batches are found nevertheless",
            )  # fmt: skip

    def _segment(self, segment: SegmentFile, checked: Checked, *, is_open: bool) -> None:
        self.totals.batches += checked.batches
        self.totals.records += checked.records
        self.totals.bytes += segment.header.size
        for at in checked.unreadable:
            self._found(DAMAGE, segment, at, SECTOR, None, "the disk cannot read this sector")
        for lost in checked.lost:
            self._found(
                self._kind(segment, lost, is_open), segment, lost.at, lost.end - lost.at, lost.records, lost.describe()
            )
        if is_open:
            self._end(segment, checked)
        elif checked.index_fault:
            self._index(segment, checked.index_fault)
        else:
            for path, fault in lookup_faults(self._directory, segment, whole=not checked.lost):
                reason = f"{fault}; the engine rebuilds it once it is removed, or when it meets the damage"
                self._report(Finding(DAMAGE, path, 0, 0, 0, reason, LEFTOVER))

    def _kind(self, segment: SegmentFile, lost: Lost, is_open: bool) -> str:
        """Only bytes that were never reported durable count as a torn tail."""
        checkpoint = self._directory.checkpoint
        promised = checkpoint is not None and segment.base + lost.at < checkpoint.durable_position
        return TORN_TAIL if is_open and lost.kind is StretchKind.TAIL and not promised else DAMAGE

    def _end(self, segment: SegmentFile, checked: Checked) -> None:
        checkpoint, end = self._directory.checkpoint, segment.base + checked.end_at
        if checkpoint is not None and end < checkpoint.durable_position:
            self._found(
                DAMAGE, segment, checked.end_at, checkpoint.durable_position - end, None,
                f"the log ends here, but {checkpoint.durable_position} was durable: the end was damaged or an older copy put back",
                VIEW,
            )  # fmt: skip
        for path in side_files(segment.path):
            if self._directory.env.exists(path):
                reason = "belongs to the active segment, from when it was full; the next start removes it"
                self._report(Finding(NOTE, path, 0, 0, 0, reason, LEFTOVER))

    def _index(self, segment: SegmentFile, fault: str) -> None:
        checkpoint = self._directory.checkpoint
        expected = checkpoint is not None and segment.base >= checkpoint.segment_base
        missing = not self._directory.env.exists(segment.index_path)
        what = NOTE if expected and missing else DAMAGE
        self._report(Finding(what, segment.index_path, 0, 0, 0, f"{fault}; it is rebuilt when it is needed", INDEX))

    def _prepared(self, segment: SegmentFile) -> None:
        """Check a segment after the active one: created ahead of its use, or its first batch was torn."""
        self.totals.bytes += segment.header.size
        checked = check_segment(self._directory, segment, sealed=False)
        for lost in checked.lost:
            self._found(
                self._kind(segment, lost, True), segment, lost.at, lost.end - lost.at, lost.records, "of no whole batch"
            )

    def _order(self, current: int) -> None:
        segments = [segment for segment in self._directory.segments if segment.base <= current]
        for below, above in pairwise(segments):
            expected = below.base + below.header.size
            if below.sound and expected != above.base:
                self._found(
                    DAMAGE, above, expected - above.base, above.base - expected, None,
                    f"the segment at {expected} is missing",
                )  # fmt: skip
        checkpoint = self._directory.checkpoint
        if checkpoint is not None and checkpoint.segment_base not in {
            segment.base for segment in self._directory.segments
        }:
            path = f"{self._directory.path}/log/{checkpoint.segment_base:020d}.seg"
            self._report(
                Finding(
                    DAMAGE, path, checkpoint.segment_base, 0, None, "the segment of the checkpoint is missing", VIEW
                )
            )

    def _strays(self) -> None:
        env, folder = self._directory.env, f"{self._directory.path}/log"
        known = {path for segment in self._directory.segments for path in side_files(segment.path)}
        for name in env.list(folder):
            path = f"{folder}/{name}"
            if name.endswith(".tmp"):
                self._report(Finding(NOTE, path, 0, 0, 0, "incomplete; the next start removes it", LEFTOVER))
            elif name.endswith(SIDE_SUFFIXES) and path not in known:
                self._report(Finding(NOTE, path, 0, 0, 0, "its segment is missing", LEFTOVER))


def _add_missing_end(checked: Checked, segment: SegmentFile, following: SegmentFile | None) -> None:
    """Note batches that are missing at the end of a full segment, which ends with zeros then: see `missing_end`."""
    if following is None or not following.sound or following.base != segment.base + segment.header.size:
        return
    if any(lost.end > checked.end_at for lost in checked.lost):
        return
    end_at, known_end = following.header.previous_end, checked.end_at
    if end_at == NOT_BEGUN and checked.index_fault:
        checked.lost.append(Lost(StretchKind.MISSING, known_end, known_end))
    elif known_end < end_at != NOT_BEGUN:
        checked.lost.append(Lost(StretchKind.MISSING, known_end, end_at))


def open_segment_of(directory: Directory) -> int:
    """Base of the segment in which the log would continue: the last one with a whole batch, else the first one."""
    for segment in reversed(directory.segments):
        if _holds_a_batch(directory, segment):
            return segment.base
    return directory.segments[0].base if directory.segments else 0


def _holds_a_batch(directory: Directory, segment: SegmentFile) -> bool:
    file = directory.open(segment)
    scan = WindowScan(directory.batches(), file, segment.base, SegmentIndex(segment.base, 0))
    try:
        return any(stretch.kind is StretchKind.GOOD for stretch in scan.stretches())
    finally:
        scan.close()
        file.close()


def verify(directory: Directory, report: Callable[[Finding], None]) -> Totals:
    """Verify the whole directory; see Verification."""
    return Verification(directory, report).run()
