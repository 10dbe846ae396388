"""Search for batches by their records, from a position of the log on: whether an append whose answer was lost is stored."""

from collections.abc import Callable, Iterable, Mapping

from engine.errors import CorruptionError
from engine.log.read.queue_reader import NO_LIMIT
from engine.log.segment.native import BatchReader
from engine.log.segment.read_end import DONE
from engine.log.segment.segment import Segment
from engine.log.segment.segments import LogSegments
from engine.log.types import RecordSlice
from engine.log.write.native import Appender

SEARCH_BYTES_MAX = 64 << 20
"""Bytes that one search reads. A caller whose position is further behind than that is not told what is stored."""
PAGE_BYTES = 1 << 20
PAGE_RECORDS = 1 << 30

QueueName = tuple[int, int]
"""(topic id, queue)"""


class BatchSearch:
    """Finds whole batches by their bytes. Keeps nothing between calls."""

    def __init__(self, log_id: bytes, appender: Appender, segments: LogSegments) -> None:
        self._appender, self._segments = appender, segments
        self._batches = BatchReader(log_id)

    def find(
        self, wanted: Mapping[QueueName, Iterable[bytes]], position: int
    ) -> dict[QueueName, tuple[dict[bytes, int], bool]]:
        """Search each queue, from the position to the log's end, for batches that hold exactly these records.

        Blocks for the disk when what lies above the position has left the page cache.

        Returns:
            by queue: the first offset of each batch that is stored, by its records; and whether the others are known
            not to be. They are not known after damage, an error of the disk, a deletion, or SEARCH_BYTES_MAX.
        """
        found: dict[QueueName, tuple[dict[bytes, int], bool]] = {}
        left = SEARCH_BYTES_MAX
        for queue, records in wanted.items():
            search = _QueueSearch(set(records), left)
            is_complete = position >= self._segments.oldest_base and self._search(search, queue, position)
            found[queue], left = (search.found, is_complete), search.bytes_left
        return found

    def find_parts(
        self, queue: QueueName, wanted: Iterable[bytes], parts: Callable[[bytes], Iterable[bytes]], position: int
    ) -> tuple[set[bytes], bool]:
        """Search one queue, from the position to the log's end, for batches that have these parts.

        Args:
            parts: of a batch's records.
        Returns: those that were found, and whether the others are known not to be stored, as in `find`.
        """
        search = _PartSearch(set(wanted), SEARCH_BYTES_MAX, parts)
        is_complete = position >= self._segments.oldest_base and self._search(search, queue, position)
        return set(search.found), is_complete

    def _search(self, search: "_QueueSearch", queue: QueueName, position: int) -> bool:
        """Whether the search saw all that the queue has from the position on, or all that was wanted."""
        try:
            for base in self._bases(position):
                segment = self._segments.at(base)
                if segment is None or segment.is_partial or not self._search_segment(search, segment, queue, position):
                    return False
                if search.is_over:
                    break
        except (OSError, CorruptionError):  # at the opening of a segment
            return False
        return True

    def _bases(self, position: int) -> list[int]:
        """Of the segments with bytes at or above the position, in order."""
        segments = self._segments
        bases = {*tuple(segments.sealed.bases), *(each.base for each in tuple(segments.sealing)), segments.active.base}
        first = max((base for base in bases if base <= position), default=0)
        return sorted(base for base in bases if base >= first)

    def _search_segment(self, search: "_QueueSearch", segment: Segment, queue: QueueName, position: int) -> bool:
        source, limit = segment.source(), NO_LIMIT
        if segment is self._segments.active:
            source, limit = self._appender.index, self._appender.end_position - segment.base
        at = source.committed_end(*queue, max(position - segment.base, 0))
        is_sound = True
        while at is not None and not search.is_over and search.bytes_left >= 0:
            pieces: list[RecordSlice] = []
            end = self._batches.read(source, segment.file, *queue, limit, at, PAGE_RECORDS, PAGE_BYTES, pieces, True)
            search.take(pieces)
            if end[0] == DONE and not pieces:
                return is_sound
            is_sound = is_sound and end[0] == DONE  # the batches after one that cannot be read are compared, too
            at = end[1]
        return search.is_over or at is None


class _QueueSearch:
    """Batches that are wanted of one queue, and those that were found."""

    def __init__(self, wanted: set[bytes], bytes_left: int) -> None:
        self._wanted, self.bytes_left = wanted, bytes_left
        self.found: dict[bytes, int] = {}

    @property
    def is_over(self) -> bool:
        """Everything is found."""
        return len(self.found) == len(self._wanted)

    def take(self, batches: list[RecordSlice]) -> None:
        """Compare batches, in their order, with what is wanted. The first copy counts."""
        for batch in batches:
            self.bytes_left -= len(batch.records)
            if batch.records in self._wanted:
                self.found.setdefault(batch.records, batch.first_offset)


class _PartSearch(_QueueSearch):
    """Parts of batches that are wanted, and those that were found."""

    def __init__(self, wanted: set[bytes], bytes_left: int, parts: Callable[[bytes], Iterable[bytes]]) -> None:
        super().__init__(wanted, bytes_left)
        self._parts = parts

    def take(self, batches: list[RecordSlice]) -> None:
        for batch in batches:
            self.bytes_left -= len(batch.records)
            for part in self._parts(batch.records):
                if part in self._wanted:
                    self.found.setdefault(part, batch.first_offset)
