"""The log's bytes as they are in its files, for a slave: whole batches, and the headers of segments."""

from google_crc32c import value

from engine.errors import CorruptionError, LogError, PositionGoneError
from engine.log.format import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    END_UNKNOWN,
    NOT_BEGUN,
    SEGMENT_HEADER_SIZE,
    padded,
    segment_name,
)
from engine.log.segment.native import BatchReader, SegmentIndex
from engine.log.segment.segment import Segment
from engine.log.segment.segments import LogSegments
from engine.log.write.native import Appender

_MAGIC = BATCH_MAGIC.to_bytes(2, "little")


class RawBatches:
    """Reads by position. Each may block for the disk when the bytes have left the page cache."""

    def __init__(self, segments: LogSegments, appender: Appender, batches: BatchReader) -> None:
        self._segments, self._batches = segments, batches
        self.appender = self._appender = appender
        """Owns the log's end. Native code reads what it has written."""

    @property
    def end_position(self) -> int:
        """End of the log."""
        return self._appender.end_position

    def read(self, position: int, bytes_max: int) -> bytes:
        """Whole batches of one segment from the position on, at most so many bytes, but at least one batch.

        Empty at the log's end, and after the last batch of a full segment, where `next_segment` goes on.

        Raises:
            PositionGoneError: the log begins above the position.
            CorruptionError: no whole batch begins there, and the file is not zero there either. The segment is a
                suspect then. What was written last is not verified: it comes from the page cache.
        """
        segment = self._segment_of(position)
        end = self._appender.end_position - segment.base
        if segment is not self._segments.active:
            end = segment.header.size
        at = position - segment.base
        is_rest = 0 < end - at <= bytes_max and segment is self._segments.active
        data = segment.file.read_at(max(BATCH_HEADER_SIZE, min(bytes_max, end - at)), at) if at < end else b""
        if is_rest and data[8:10] == _MAGIC:
            return data  # up to the log's end: whole batches
        try:
            size, first = self._whole(segment, at, data)
            found = data[:size] if size or not first else segment.file.read_at(first, at)
            return self._verified(segment, at, found)
        except CorruptionError:
            self._segments.suspects.add(segment.base)
            raise

    def _verified(self, segment: Segment, at: int, data: bytes) -> bytes:
        """The whole batches with which the data begins."""
        end = self._scanned(segment, at, data, at)
        if end < at + len(data):
            self._segments.suspects.add(segment.base)
        if end == at and data:
            raise CorruptionError(segment.path, segment.base + at, len(data), "the batch does not verify")
        return data[: end - at]

    def _scanned(self, segment: Segment, start: int, data: bytes, at: int) -> int:
        """Address after the whole batches that begin at `start`. `at`: address of the data."""
        scanned = self._batches.scan(SegmentIndex(segment.base, 0), data, start, at + len(data), at)
        return int(scanned[0])

    @property
    def first_position(self) -> int:
        """Position of the first batch that is still in the log."""
        return self._segments.oldest_base + SEGMENT_HEADER_SIZE

    def checksum(self, end: int, bytes_max: int) -> tuple[int, int]:
        """(number, CRC-32C) of the bytes below a position, at most so many, and of its segment only.

        Raises PositionGoneError.
        """
        segment = self._segment_of(end)
        at = max(SEGMENT_HEADER_SIZE, end - segment.base - bytes_max)
        data = segment.file.read_at(end - segment.base - at, at)
        return len(data), value(data)

    def proof(self, end: int, bytes_max: int) -> tuple[int, int]:
        """As checksum(), of whole batches alone: bytes that are damaged here prove nothing about another log.

        A single batch that is larger than `bytes_max` is not verified.
        """
        _, run = self._whole_run(end, bytes_max)
        segment = self._segment_of(end)
        data = segment.file.read_at(end - segment.base - run, run)
        return len(data), value(data)

    def damaged_below(self, end: int, bytes_max: int) -> int | None:
        """Position of the lowest damage in those bytes below `end`; None: there is none.

        The segment is a suspect then.
        """
        at, run = self._whole_run(end, bytes_max)
        return None if run == at else self._segment_of(end).base + at

    def stored_at_ms(self, position: int) -> int:
        """Unix time of the first batch from the position on; 0: there is none, or the disk cannot read it."""
        try:
            segment = self._segment_of(position)
            following = self._segments.at(segment.next_base)
            for each, at in ((segment, position - segment.base), (following, SEGMENT_HEADER_SIZE)):
                header = each.file.read_at(BATCH_HEADER_SIZE, at) if each is not None else b""
                if header[8:10] == _MAGIC:
                    return int(BATCH_HEADER.unpack(header)[-1])
        except (LogError, OSError):
            pass
        return 0

    def is_damaged(self, position: int) -> bool:
        """Whether bytes are lost at the position, where a batch begins or has begun. Also while the disk cannot read."""
        try:
            if not self.read(position, BATCH_HEADER_SIZE) and position < self._appender.end_position:
                self.next_segment(position)
        except PositionGoneError:
            return False
        except (CorruptionError, OSError):
            return True
        return False

    def _whole_run(self, end: int, bytes_max: int) -> tuple[int, int]:
        """(address of the first damage, address from which on all is whole up to `end`); equal: there is no damage."""
        segment = self._segment_of(end)
        first = max(SEGMENT_HEADER_SIZE, end - segment.base - bytes_max)
        data = segment.file.read_at(end - segment.base - first, first)
        start = self._batches.find_next(data, segment.base + first, 0, len(data))
        if start is None:
            return first, first
        damaged = None
        while True:
            reached = self._scanned(segment, first + start, data, first)
            if reached == first + len(data):
                return (first + start if damaged is None else damaged), first + start
            self._segments.suspects.add(segment.base)
            damaged = reached if damaged is None else damaged
            found = self._batches.find_next(data, segment.base + first, reached - first, len(data))
            if found is None:
                return damaged, first + len(data)
            start = found

    def next_segment(self, position: int) -> tuple[int, bytes]:
        """(base, header as it is in the file) of the segment after the one with the position, which is full.

        Raises:
            PositionGoneError: there is none, or the position's segment was deleted.
            CorruptionError: batches are missing in between. The segment is a suspect then.
        """
        following = self._segments.at(self._segment_of(position).next_base)
        if following is None:
            raise PositionGoneError(f"position {position}: no segment follows")
        full = self._segment_of(position)
        if position - full.base < following.header.previous_end != NOT_BEGUN:
            self._segments.suspects.add(full.base)
            size = full.base + following.header.previous_end - position
            raise CorruptionError(full.path, position, size, "the end of the segment is missing")
        return following.base, following.file.read_at(SEGMENT_HEADER_SIZE, 0)

    @property
    def batches_end(self) -> int:
        """End of the last batch: before the log's end if the active segment has none, and that is known."""
        active, end = self._segments.active, self._appender.end_position
        if end > active.base + SEGMENT_HEADER_SIZE or active.header.previous_end in (END_UNKNOWN, NOT_BEGUN):
            return end
        try:
            return self._segment_of(active.base).base + active.header.previous_end
        except PositionGoneError:  # it was deleted
            return end

    def path_of(self, base: int) -> str:
        """Path of the segment at `base`. Opens nothing. Raises PositionGoneError."""
        active = self._segments.active
        if base not in (active.base, *(each.base for each in self._segments.sealing), *self._segments.sealed.bases):
            raise PositionGoneError(f"position {base}: its segment is deleted")
        return f"{active.path.rpartition('/')[0]}/{segment_name(base)}"

    def _segment_of(self, position: int) -> Segment:
        for segment in (self._segments.active, *reversed(self._segments.sealing)):
            if segment.base < position:
                return segment
        base = max((base for base in tuple(self._segments.sealed.bases) if base < position), default=-1)
        found = self._segments.at(base)
        if found is None or position > found.next_base:
            raise PositionGoneError(f"position {position}: its segment is deleted")
        return found

    @staticmethod
    def _whole(segment: Segment, at: int, data: bytes) -> tuple[int, int]:
        """(size of the whole batches with which the data begins, size of the first batch; 0: there is none)."""
        size = first = 0
        while size + BATCH_HEADER_SIZE <= len(data):
            batch = int.from_bytes(data[size + 4 : size + 8], "little")
            is_batch = int.from_bytes(data[size + 8 : size + 10], "little") == BATCH_MAGIC
            if not is_batch or batch <= BATCH_HEADER_SIZE or padded(batch) > segment.header.size - at - size:
                if any(data[size : size + BATCH_HEADER_SIZE]) and not size:
                    raise CorruptionError(segment.path, segment.base + at, 0, "no batch begins here")
                break
            first = first or padded(batch)
            if size + padded(batch) > len(data):
                break
            size += padded(batch)
        return size, first
