"""The log's bytes as they are in its files, for a slave: whole batches, and the headers of segments."""

from google_crc32c import value

from engine.errors import CorruptionError, LogError
from engine.log.format import BATCH_HEADER_SIZE, BATCH_MAGIC, SEGMENT_HEADER_SIZE, padded
from engine.log.segment.segment import Segment
from engine.log.segment.segments import LogSegments
from engine.log.write.native import Appender

_MAGIC = BATCH_MAGIC.to_bytes(2, "little")


class PositionGoneError(LogError):
    """The position is in a segment that was deleted."""


class RawBatches:
    """Reads by position. Each may block for the disk when the bytes have left the page cache."""

    def __init__(self, segments: LogSegments, appender: Appender) -> None:
        self._segments, self._appender = segments, appender

    @property
    def end_position(self) -> int:
        """End of the log."""
        return self._appender.end_position

    def read(self, position: int, bytes_max: int) -> bytes:
        """Whole batches of one segment from the position on, at most so many bytes, but at least one batch.

        Empty at the log's end, and after the last batch of a full segment, where `next_segment` goes on.

        Raises:
            PositionGoneError: the log begins above the position.
            CorruptionError: no batch begins there, and the file is not zero there either.
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
        size, first = self._whole(segment, at, data)
        return data[:size] if size or not first else segment.file.read_at(first, at)

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

    def next_segment(self, position: int) -> tuple[int, bytes]:
        """(base, header as it is in the file) of the segment after the one with the position, which is full.

        Raises PositionGoneError.
        """
        following = self._segments.at(self._segment_of(position).next_base)
        if following is None:
            raise PositionGoneError(f"position {position}: no segment follows")
        return following.base, following.file.read_at(SEGMENT_HEADER_SIZE, 0)

    def piece(self, base: int, address: int, size: int) -> bytes:
        """Bytes of the segment at `base` as they are in its file; fewer at its end. Raises PositionGoneError."""
        segment = self._segments.at(base)
        if segment is None:
            raise PositionGoneError(f"position {base}: its segment is deleted")
        return segment.file.read_at(size, address)

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
