"""Verifying, slicing and scanning batches in pure Python: the reference for _batch_reader.pyx."""

from bisect import bisect_right
from mmap import mmap

from google_crc32c import extend, value

from engine.env.base import File
from engine.log.format import BATCH_HEADER, BATCH_HEADER_SIZE, BATCH_MAGIC, FLAG_COPIED, KIND_MAX, padded
from engine.log.segment.index import EntrySource, SegmentIndex
from engine.log.segment.read_end import BELOW, DAMAGED, DONE, HOLE, UNREADABLE, ReadEnd
from engine.log.types import RecordSlice

_MAGIC_BYTES = BATCH_MAGIC.to_bytes(2, "little")


class BatchReader:
    """Reads batches of one log."""

    def __init__(self, log_id: bytes) -> None:
        self._seed = value(log_id)

    def _verifies(self, batch: bytes | memoryview, position: int) -> bool:
        crc = extend(extend(self._seed, position.to_bytes(8, "little")), bytes(batch[4:]))
        return crc == int.from_bytes(batch[:4], "little")

    def read(
        self, source: EntrySource, file: File, topic_id: int, queue: int, limit_at: int, offset: int,
        max_records: int, max_bytes: int, out: list[RecordSlice], whole: bool = False,
    ) -> ReadEnd:  # fmt: skip
        """As the native one."""
        run = source.entries(topic_id, queue)
        at = bisect_right(run, offset, key=lambda entry: entry[0]) - 1
        if at < 0:
            return ReadEnd(BELOW, offset, max_records, max_bytes)
        while at < len(run) and max_records > 0 and (max_bytes > 0 or not out):
            base_offset, place, size, count, _ = run[at]
            if place >= limit_at:
                break
            if offset < base_offset:
                return ReadEnd(HOLE, base_offset, max_records, max_bytes, place)
            at += 1
            if offset >= base_offset + count:
                continue
            try:
                batch = file.read_at(size, place)
            except OSError:
                return ReadEnd(UNREADABLE, base_offset + count, max_records, max_bytes, place, size)
            if not self._is(batch, source.base + place, (size, topic_id, queue, count, base_offset)):
                return ReadEnd(DAMAGED, base_offset + count, max_records, max_bytes, place, size)
            room = len(batch) if whole else max_bytes
            start, end, taken = _slice(batch, count, offset - base_offset, max_records, room, bool(out))
            if taken == 0:
                return ReadEnd(DONE, offset, max_records, 0)
            stored_at_ms = int.from_bytes(batch[40:48], "little", signed=True)
            out.append(RecordSlice(offset, taken, stored_at_ms, batch[start:end]))
            offset += taken
            max_records -= taken
            max_bytes = max(max_bytes - (end - start), 0)
            if offset < base_offset + count:
                max_bytes = 0 if max_records else max_bytes
                break
        return ReadEnd(DONE, offset, max_records, max_bytes)

    def _is(self, batch: bytes, position: int, expected: tuple[int, int, int, int, int]) -> bool:
        """Whether the bytes are whole and the very batch that the index means."""
        if len(batch) != expected[0] or len(batch) < BATCH_HEADER_SIZE:
            return False
        _, size, magic, _, _, _, topic_id, queue, count, _, base_offset, _ = BATCH_HEADER.unpack_from(batch)
        return (
            magic == BATCH_MAGIC
            and (size, topic_id, queue, count, base_offset) == expected
            and self._verifies(batch, position)
        )

    def check(self, buffer: bytes | memoryview | mmap, at: int, end: int, position: int) -> int:
        """Size in bytes of the valid batch at `at`, or 0."""
        left = min(end, len(buffer)) - at
        if left < BATCH_HEADER_SIZE:
            return 0
        _, size, magic, kind = BATCH_HEADER.unpack_from(buffer, at)[:4]
        if magic != BATCH_MAGIC or not BATCH_HEADER_SIZE <= size <= left or kind > KIND_MAX:
            return 0
        return size if self._verifies(memoryview(buffer)[at : at + size], position) else 0

    def scan(
        self, index: SegmentIndex, buffer: bytes | memoryview | mmap, at: int, end: int, origin: int = 0
    ) -> tuple[int, list[int], int, int, int]:
        """As the native one.

        (address after the last valid batch, control addresses, highest epoch, last address, its checksum).
        """
        found = self.verify(index.base, buffer, at, end, origin)
        self.enter(index, buffer, at, found[0], origin)
        return found

    def verify(
        self, base: int, buffer: bytes | memoryview | mmap, at: int, end: int, origin: int = 0
    ) -> tuple[int, list[int], int, int, int]:
        """As scan() of the segment at `base`, without an index."""
        control, highest, last, last_crc = [], 0, 0, 0
        while at >= origin and (size := self.check(buffer, at - origin, end - origin, base + at)):
            crc, _, _, kind, flags, epoch = BATCH_HEADER.unpack_from(buffer, at - origin)[:6]
            if kind or flags & FLAG_COPIED:
                control.append(at)
            highest = max(highest, epoch)
            last, last_crc = at, crc
            at += padded(size)
        return at, control, highest, last, last_crc

    def enter(self, index: SegmentIndex, buffer: bytes | memoryview | mmap, at: int, end: int, origin: int = 0) -> None:
        """Take the batches from `at` to `end` into the index. The caller has verified them."""
        while at < end:
            _, size, _, _, _, _, topic_id, queue, count, _, base_offset, stored_at_ms = BATCH_HEADER.unpack_from(
                buffer, at - origin
            )
            index.add_entry(topic_id, queue, base_offset, at, size, count, stored_at_ms)
            at += padded(size)

    def find_next(self, buffer: bytes | memoryview | mmap, base: int, at: int, end: int) -> int | None:
        """Byte address of the first valid batch at or after `at` (a multiple of 8), or None."""
        data = bytes(memoryview(buffer)[:end])
        found = data.find(_MAGIC_BYTES, at + 8)
        while found >= 0:
            if (found - 8) % 8 == 0 and self.check(data, found - 8, end, base + found - 8):
                return found - 8
            found = data.find(_MAGIC_BYTES, found + 1)
        return None


def _slice(
    batch: bytes, count: int, skipped: int, max_records: int, max_bytes: int, some: bool
) -> tuple[int, int, int]:
    """(start, end, records) of the wanted part of a batch.

    No record is wanted that would exceed the bytes, except the first of all.
    """
    start = BATCH_HEADER_SIZE
    for _ in range(skipped):
        start += 4 + int.from_bytes(batch[start : start + 4], "little")
    end, taken = start, 0
    while taken < count - skipped and taken < max_records:
        size = 4 + int.from_bytes(batch[end : end + 4], "little")
        if end - start + size > max_bytes and (taken or some):
            break
        end += size
        taken += 1
    return start, end, taken
