"""Finding a queue's records: in the active segment, in those being sealed, then in sealed ones through the view."""

from collections.abc import Iterator
from typing import NoReturn

from engine.env.base import File
from engine.errors import CorruptionError, OffsetOutOfRangeError, StoreDamagedError, UnreadableError
from engine.log.read.borrowed import WINDOW
from engine.log.read.cold import ColdReads
from engine.log.read.unreadable import UnreadableBatches
from engine.log.segment.native import BatchReader, SealedIndex, SegmentIndex
from engine.log.segment.read_end import DAMAGED, DONE, HOLE, UNREADABLE
from engine.log.segment.segment import Segment
from engine.log.segment.segments import LogSegments
from engine.log.types import RecordSlice
from engine.log.view import NO_SEGMENT, View
from engine.log.write.native import Appender

SIZES_MAX = 100_000
SPANS_MAX = 10_000
NO_LIMIT = 0xFFFFFFFFFFFFFFFF
WAITS = -1
"""A read ended because records are being fetched."""


class QueueReader:
    """Reads by offset and by time. Between calls it keeps only caches."""

    def __init__(
        self, log_id: bytes, appender: Appender, view: View, segments: LogSegments, cold: ColdReads,
        unreadable: UnreadableBatches,
    ) -> None:  # fmt: skip
        self._appender = appender
        self._view = view
        self._segments = segments
        self._batches = BatchReader(log_id)
        self.cold, self.unreadable = cold, unreadable
        self._sizes: dict[tuple[int, int, int], int] = {}
        """(base, topic id, queue) -> bytes that the queue has in a sealed segment, as far as they were needed."""
        self._spans: dict[tuple[int, int], tuple[int, int, int]] = {}
        """(topic id, queue) -> last result of View.span_of(): reading through a queue needs the same segment many
        times."""

    def bounds(self, topic_id: int, queue: int) -> tuple[int, int]:
        """(first readable offset, end offset)."""
        end = self.end(topic_id, queue)
        return min(next((first for first, _ in self._runs(topic_id, queue, 0)), end), end), end

    def used(self, topic_id: int, queues: int) -> set[int]:
        """See LogReader.used_queues."""
        found = set(self._view.queues_with_segments(topic_id, queues))
        for index in (self._appender.index, *self._appender.older):
            found.update(queue for queue in range(queues) if index.next_offset(topic_id, queue) is not None)
        return found

    def read(
        self, topic_id: int, queue: int, offset: int, max_records: int, max_bytes: int, *, whole: bool = False
    ) -> list[RecordSlice]:
        """See LogReader.read."""
        if self.unreadable.places and (after := self.unreadable.rests((topic_id, queue), offset)) is not None:
            self._refuse(topic_id, queue, offset, after, self._segments.active)
        pieces: list[RecordSlice] = []
        try:
            how, segment, at, bad_at, bad_bytes = self._read(
                topic_id, queue, offset, max_records, max_bytes, whole, pieces
            )
        except (OSError, StoreDamagedError) as error:
            # Of the view, or at the opening of a segment; what was read before it is served.
            if not pieces:
                self.unreadable.refused((topic_id, queue), error)
                raise UnreadableError(f"topic={topic_id} queue={queue}: cannot be read now: {error}") from error
            return pieces
        if pieces and self.unreadable.places:
            self.unreadable.healed((topic_id, queue), offset)
        if pieces or max_records <= 0 or how == WAITS:
            return pieces
        if how == UNREADABLE or (how == DAMAGED and self._segments.suspects.can_be_repaired):
            self._segments.suspects.add(segment.base)
            self.unreadable.failed((topic_id, queue), offset, at, segment.path)
            self._refuse(topic_id, queue, offset, at, segment)
        return self._explain(topic_id, queue, offset, how, at, (segment, bad_at, bad_bytes))

    def _read(
        self, topic_id: int, queue: int, offset: int, max_records: int, max_bytes: int, whole: bool,
        pieces: list[RecordSlice],
    ) -> tuple[int, Segment, int, int, int]:  # fmt: skip
        """Append to `pieces`; returns how it ended, in which segment, the next offset, address and size of bad bytes."""
        segment = self._segments.active
        source: SegmentIndex | SealedIndex = self._appender.index
        at, records, size = offset, max_records, max_bytes
        limit, file, is_cold = self._limit(segment), segment.file, False
        while True:
            had, begin = len(pieces), at
            how, at, records, size, bad_at, bad_bytes = self._batches.read(
                source, file, topic_id, queue, limit, at, records, size, pieces, whole
            )
            if is_cold:
                self.cold.served(topic_id, queue, sum(len(piece.records) for piece in pieces[had:]))
            if file is not segment.file and how in (DAMAGED, UNREADABLE):
                at, is_cut = begin, bad_at + bad_bytes > limit + WINDOW
                limit, file = self._limit_again(segment, topic_id, queue, at, bad_bytes if is_cut else 0, pieces)
                if limit == 0:
                    return WAITS, segment, at, 0, 0
                continue
            ended = how in (HOLE, DAMAGED, UNREADABLE) or (how == DONE and segment is self._segments.active)
            if ended or records <= 0 or (pieces and size <= 0) or at == self.end(topic_id, queue):
                break
            found = self.find(topic_id, queue, at)
            if found is None or found[0] is segment:
                break
            segment, source = found
            limit, file = self._limit(segment), segment.file
            is_cold = self.cold.covers(segment, self._appender)
            if is_cold:
                limit, file = self.cold.limit(segment, topic_id, queue, at)
                if limit == 0:
                    return WAITS, segment, at, 0, 0
        if not pieces and how == DONE and limit != self._limit(segment):
            # A hole in the queue after the fetched bytes: no fetch will fill it.
            how, at, _, _, bad_at, bad_bytes = self._batches.read(
                source, segment.file, topic_id, queue, NO_LIMIT, at, records, size, pieces, whole
            )
        return how, segment, at, bad_at, bad_bytes

    def _limit_again(
        self, segment: Segment, topic_id: int, queue: int, offset: int, cut_bytes: int, pieces: list[RecordSlice]
    ) -> tuple[int, File]:  # fmt: skip
        """The limit and the file after borrowed bytes did not have the whole batch, of that size, or did not verify (0).

        Only the own file tells what is damaged.
        """
        if not cut_bytes:
            self.cold.distrust(segment)
        if pieces:
            return 0, segment.file  # they are served; the next read begins at the batch
        return self.cold.limit(segment, topic_id, queue, offset, cut_bytes)

    def _refuse(self, topic_id: int, queue: int, offset: int, after: int, segment: Segment) -> NoReturn:
        """Raise UnreadableError, or CorruptionError once the batch that the disk cannot read counts as damaged."""
        sentence = f"topic={topic_id} queue={queue} offset={offset}: the disk cannot read it"
        if self.unreadable.is_lost((topic_id, queue), offset):
            raise CorruptionError(segment.path, segment.base, 0, sentence, after)
        raise UnreadableError(f"{sentence} now; it is tried again")

    def offset_at_time(self, topic_id: int, queue: int, at_ms: int) -> int:
        """As Log.offset_at_time. Most questions are about recent records, so the newest segments are asked first."""
        found: int | None = None
        for segment in (self._segments.active, *reversed(self._segments.sealing)):
            source = segment.source()
            first = source.first_offset(topic_id, queue)
            if first is None or first == self.end(topic_id, queue):
                continue
            offset = source.offset_at_time(topic_id, queue, at_ms, self._limit(segment))
            found = found if offset is None else offset
            if offset != first:  # the queue's first record here is older, and so is every segment before
                return self.end(topic_id, queue) if found is None else found
        sealed = self._sealed_offset_at_time(topic_id, queue, at_ms)
        found = found if sealed is None else sealed
        return self.end(topic_id, queue) if found is None else found

    def _sealed_offset_at_time(self, topic_id: int, queue: int, at_ms: int) -> int | None:
        """The same among sealed segments; None when all of their records are older.

        Halves the queue's offsets, because segments follow each other in time: one look-up per doubling of their number.
        The view may know a segment that is not sealed: it is just being sealed, or is active again since a start.
        """
        unsealed = min((segment.base for segment in tuple(self._segments.sealing)), default=self._segments.active.base)
        low, high = 0, self._view.stored_end(topic_id, queue)
        found: int | None = None
        while low < high:
            middle = (low + high) // 2
            first, base, following = self._segment_span(topic_id, queue, middle)
            if base >= unsealed:
                high = first
                continue
            segment = self._segments.sealed.get(base)
            offset = None if segment is None else segment.source().offset_at_time(topic_id, queue, at_ms, NO_LIMIT)
            if offset is None:
                low = max(following, middle + 1)
            else:
                found, high = offset, first
        return found

    def _segment_span(self, topic_id: int, queue: int, offset: int) -> tuple[int, int, int]:
        """As View.span_of, passing over counters: a gap may follow one. Without a segment the base is -1."""
        found = self._view.span_of(topic_id, queue, offset)
        while found is not None and found[0] and found[1] == NO_SEGMENT:
            found = self._view.span_of(topic_id, queue, found[0] - 1)
        return (0, -1, 0) if found is None or found[1] == NO_SEGMENT else found

    def offset_within(self, topic_id: int, queue: int, size: int) -> int:
        """Oldest offset such that the queue's batches from it on have at most `size` bytes; the newest batch always
        counts."""
        kept = end = self.end(topic_id, queue)
        for first, base in reversed(list(self._runs(topic_id, queue, 0))):
            known = self._sizes.get((base, topic_id, queue), size + 1)
            segment = self._segments.at(base) if known > size else None
            if segment is None:
                kept, size = first, max(size - known, 0)
                continue
            found, left = segment.source().offset_within(topic_id, queue, size, self._limit(segment), kept == end)
            if found is None and left:
                continue  # the queue's batches in this segment are not readable yet
            kept = kept if found is None else found
            if found != first:
                break
            if segment.sealed is not None:
                self._remember_size((base, topic_id, queue), size - left)
            size = left
        return kept

    def _remember_size(self, known: tuple[int, int, int], size: int) -> None:
        if len(self._sizes) > SIZES_MAX:
            self._sizes.clear()
        self._sizes[known] = size

    def _explain(
        self, topic_id: int, queue: int, offset: int, how: int, at: int, place: tuple[Segment, int, int]
    ) -> list[RecordSlice]:
        """Return or raise the reason why nothing can be read at `offset`: the end, out of range, or damage."""
        segment, bad_at, bad_bytes = place
        if offset == self.end(topic_id, queue):
            return []
        first, end = self.bounds(topic_id, queue)
        if not first <= offset < end:
            raise OffsetOutOfRangeError(offset, first, end)
        if how == DAMAGED:
            self._segments.suspects.add(segment.base)
            raise CorruptionError(
                segment.path,
                segment.base + bad_at,
                bad_bytes,
                f"topic={topic_id} queue={queue} offset={offset}: does not verify",
                at,
            )
        following = next((start for start, _ in self._runs(topic_id, queue, offset + 1)), end)
        if how == HOLE:
            following = min(at, following)
        raise CorruptionError(
            segment.path,
            segment.base,
            0,
            f"topic={topic_id} queue={queue} offset={offset}: lost up to {following}",
            following,
        )

    def _committed_at(self) -> int:
        return self._appender.end_position - self._appender.segment_base

    def _limit(self, segment: Segment) -> int:
        return self._committed_at() if segment is self._segments.active else NO_LIMIT

    def end(self, topic_id: int, queue: int) -> int:
        """The end offset."""
        index = self._appender.index
        end = index.committed_end(topic_id, queue, self._committed_at())
        if end is None:
            end = index.next_offset(topic_id, queue)  # where it was raised to
        return self._appender.next_offset(topic_id, queue) if end is None else end

    def find(self, topic_id: int, queue: int, offset: int) -> tuple[Segment, SegmentIndex | SealedIndex] | None:
        """The newest segment in which the queue begins at or below `offset`."""
        found = self._newest(topic_id, queue, offset)
        base = self._sealed_base(topic_id, queue, offset) if found is None else None
        sealed = None if base is None else self._segments.sealed.get(base)
        return found if sealed is None else (sealed, sealed.source())

    def distance(self, topic_id: int, queue: int, offset: int) -> int:
        """Bytes from the begin of the record's segment to the end of the log; 0: it is in none, or not in a sealed one.

        Opens no segment. Raises OSError, StoreDamagedError.
        """
        if self._newest(topic_id, queue, offset) is not None:
            return 0
        base = self._sealed_base(topic_id, queue, offset)
        return 0 if base is None else self._appender.end_position - base

    def _newest(self, topic_id: int, queue: int, offset: int) -> tuple[Segment, SegmentIndex | SealedIndex] | None:
        """As find(), of the segments that are not sealed yet."""
        for segment in (self._segments.active, *reversed(self._segments.sealing)):
            source = segment.source()
            first = source.first_offset(topic_id, queue)
            if first is not None and first <= offset:
                return segment, source
        return None

    def _sealed_base(self, topic_id: int, queue: int, offset: int) -> int | None:
        """The base of the sealed segment in which the queue begins at or below `offset`."""
        first, base, end = self._spans.get((topic_id, queue), (0, 0, 0))
        if not first <= offset < end:
            found = self._view.span_of(topic_id, queue, offset)
            if found is None:
                return None
            if len(self._spans) == SPANS_MAX:
                self._spans.clear()
            _, base, _ = self._spans[topic_id, queue] = found
        return base

    def _runs(self, topic_id: int, queue: int, offset: int) -> Iterator[tuple[int, int]]:
        """(first offset of the queue in it, base) of the segments whose first offset is not below `offset`, in
        order."""
        sealing = tuple(self._segments.sealing)
        last = -1
        for first, base in self._view.segments_from(topic_id, queue, offset):
            if base in self._segments.sealed.bases:
                last = base
                yield first, base
        for segment in (*sealing, self._segments.active):
            begin = segment.source().first_offset(topic_id, queue)
            if segment.base > last and begin is not None and begin >= offset:
                yield begin, segment.base

    def segments_of(self, topic_id: int, queue: int) -> list[int]:
        """Bases of the segments that hold records of the queue, in order."""
        return [base for _, base in self._runs(topic_id, queue, 0)]
