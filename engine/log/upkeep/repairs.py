"""Repairs of an open log: which segments are to be checked, and what follows from repaired bytes for index and view."""

import logging
from collections.abc import Generator, Sequence

from engine.env.base import Env
from engine.errors import CorruptionError
from engine.log.format import INDEX_HEADER
from engine.log.segment.index_file import index_in_memory, index_path, load_index
from engine.log.segment.native import BatchReader
from engine.log.segment.recovery_scan import SegmentDamage, scan_segment
from engine.log.segment.segment import Segment, open_segment
from engine.log.segment.segments import LogSegments
from engine.log.segment.side_files import side_files
from engine.log.upkeep.peer_repair import Fetch, PeerRepair, SegmentRepair
from engine.log.upkeep.stale_view import mark_stale_view
from engine.log.view import View
from engine.log.write.sealer import correct_directory, keep_index

logger = logging.getLogger(__name__)


class LogRepairs:
    """Runs in a thread. The loop goes on to append and to read meanwhile.

    Args:
        directory: of the segments.
        damage: as the start has found it.
    """

    def __init__(
        self, env: Env, directory: str, batches: BatchReader, segments: LogSegments, view: View,
        damage: Sequence[SegmentDamage],
    ) -> None:  # fmt: skip
        self._env, self._directory, self._batches = env, directory, batches
        self._segments, self._view, self._damage = segments, view, damage
        self._data = directory.rpartition("/")[0]
        self._later: set[int] = set()  # repaired while they were written: their index is checked once they are full
        self._files = PeerRepair(env, self._data, segments.active.header.log_id)
        self.suspects = segments.suspects
        self._add_damage()

    def look(self, deleted_to: int) -> None:
        """Add segments whose file is missing, and those that have become full. Reads each segment's header.

        Args:
            deleted_to: position below which retention has deleted segments.
        """
        for base in self._files.missing(deleted_to):
            self.suspects.add(base)
        for base in [base for base in self._later if self._is_sealed(base)]:
            self._later.discard(base)
            self.suspects.add(base)

    def steps(self, base: int, limit: int, fetch: Fetch) -> Generator[None, None, SegmentRepair]:
        """Check one segment and repair it, in steps. A sound one is no suspect afterwards.

        Args:
            limit: bytes below this position are the same in both logs.
        Raises:
            OSError, LinkError: the disk or the other broker failed; the segment stays a suspect.
        """
        outcome = SegmentRepair()
        active = self._segments.active.base
        is_full = base < active
        if base > active or any(segment.base == base for segment in tuple(self._segments.sealing)):
            return outcome  # its index is about to be written
        yield from self._files.repair(base, limit, fetch, is_full=is_full, outcome=outcome)
        was_lost = self._was_lost(base, outcome)
        if was_lost:
            # Its control records are not in the view, and a later record of the same key may be: no replay in place.
            mark_stale_view(self._env, self._data)
            outcome.is_stale = True
        if is_full and base in self._segments.sealed.bases and not outcome.left:
            self._check_index(base)
        elif not is_full and outcome.bytes:
            self._later.add(base)
        if not outcome.left:
            self.suspects.discard(base)
        return outcome

    def _add_damage(self) -> None:
        for each in self._damage:
            self.suspects.add(int(each.path.rpartition("/")[2].partition(".")[0]))

    def _is_sealed(self, base: int) -> bool:
        return base in self._segments.sealed.bases and all(each.base != base for each in tuple(self._segments.sealing))

    def _was_lost(self, base: int, outcome: SegmentRepair) -> bool:
        """Whether the start has gone without bytes that are here now."""
        if outcome.is_restored:
            return base not in self._segments.sealed.bases
        starts = [(each.position - base, each.position - base + max(each.bytes_lost, 1)) for each in self._damage]
        return any(at < end and start < done for at, done in outcome.repaired for start, end in starts)

    def _check_index(self, base: int) -> None:
        """Make index and side files again if they do not list what the segment has."""
        segment = open_segment(self._env, self._directory, base)
        scan = scan_segment(self._batches, segment, is_tail=False)
        if scan.damage or self._is_indexed(segment):
            segment.close()
            return
        for path in side_files(segment.path):
            self._env.unlink(path)
        assert segment.index is not None
        segment.sealed = index_in_memory(segment, segment.index)
        correct_directory(self._view, segment)
        keep_index(self._env, segment, scan)
        segment.index = None
        if base in self._segments.sealed.bases:
            self._segments.sealed.add(segment)
            logger.warning("file=%s: its index was made again after a repair", segment.path)

    def _is_indexed(self, segment: Segment) -> bool:
        assert segment.index is not None
        end_at, (_, _, body) = segment.end_at, segment.index.encode()
        try:
            load_index(self._env, segment)
            known, segment.end_at = segment.end_at, end_at
            file = self._env.open(index_path(segment))
        except (CorruptionError, FileNotFoundError):
            segment.end_at = end_at
            return False
        try:
            return known == end_at and bytes(file.read_at(file.size(), INDEX_HEADER.size)) == bytes(body)
        finally:
            file.close()
