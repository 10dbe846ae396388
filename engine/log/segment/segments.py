"""The segments of an open log by state: active, being sealed, sealed."""

from collections.abc import Callable

from engine.log.format import SegmentHeader
from engine.log.segment.segment import SealedSegments, Segment
from engine.log.segment.side_files import SideFiles
from engine.log.segment.suspects import SuspectSegments


class LogSegments:
    """Every segment is in one of three states and only moves forward: active, sealing, sealed.

    Belongs to the loop's thread. Only `finish_sealing` runs in the sealing thread.

    Args:
        active: the segment that is being written.
        bases: of the sealed segments.
        open_sealed: opens a sealed segment with its index; the header replaces a damaged one. May block.
    """

    def __init__(
        self, active: Segment, bases: list[int], open_max: int,
        open_sealed: Callable[[int, SegmentHeader], Segment], side: SideFiles,
    ) -> None:  # fmt: skip
        self.active = active
        self.sealing: list[Segment] = []
        """Full segments whose index is still in memory, oldest first."""
        self.sealed = SealedSegments(bases, open_max, self._open, side)
        self.suspects = SuspectSegments()
        """Those in which damage was met."""
        self._open_sealed = open_sealed

    @property
    def oldest_base(self) -> int:
        """Position of the first byte that is still in the log."""
        first = next(iter(self.sealing), self.active).base
        return min(self.sealed.bases, default=first)

    def at(self, base: int) -> Segment | None:
        """The segment that begins at that position, or None when there is none (any more)."""
        for segment in (self.active, *self.sealing):
            if segment.base == base:
                return segment
        return self.sealed.get(base)

    def finish_sealing(self, segment: Segment) -> None:
        """Move a segment from sealing to sealed and drop its index from memory. Called in the sealing thread, last.

        The loop reads these lists meanwhile. Each changes by one step, and a segment is in both for a moment rather
        than in none.
        """
        self.sealed.add(segment)
        self.sealing.remove(segment)
        segment.index = None

    def close(self) -> None:
        """Close all files."""
        for segment in (*self.sealing, self.active):
            segment.close()
        self.sealed.close()

    def _open(self, base: int) -> Segment:
        header = self.active.header
        above = (other for other in tuple(self.sealed.bases) if other > base)
        size = min(above, default=self.active.base) - base
        return self._open_sealed(base, SegmentHeader(header.log_id, base, header.epoch, size, header.created_ms))
