"""Decodes the record batches of a fetch, message format 2, into columns. The reference of `_decoding.pyx`.

A batch, big-endian; the checksum covers everything after it:

    i64 first offset ‖ i32 size of what follows ‖ i32 leader's epoch ‖ i8 2 ‖ u32 CRC-32C ‖ i16 attributes ‖
    i32 last offset delta ‖ i64 first timestamp ‖ i64 last timestamp ‖ i64 producer ‖ i16 epoch ‖ i32 sequence ‖
    i32 records; then the records, compressed where bits 0 to 2 of the attributes say so

A record, its numbers zigzag varints: size ‖ i8 attributes ‖ timestamp delta ‖ offset delta ‖ key ‖ value ‖ number of
headers, each name ‖ value. Key, value and a header's value are size ‖ bytes; a negative size is null.
"""

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import google_crc32c

from common.kafka.records import Headers

HEAD = struct.Struct(">qiibIhiqqqhii")
PREFIX = struct.Struct(">qi")
CHECKED_FROM = 21
"""Offset of the first byte that the checksum covers."""
MAGIC_AT, MAGIC = 16, 2
OFFSET_MAX = 1 << 62
RECORD_SIZE_MIN = 7
HEADER_SIZE_MIN = 2
CODEC_MASK, APPEND_TIME, TRANSACTIONAL, CONTROL = 7, 8, 16, 32
_ABORT = struct.Struct(">hh")


class MalformedBatch(Exception):
    """A broker has sent bytes that are not record batches. The text names the rule, and the batch by its offset."""


Decompress = Callable[[int, bytes], bytes]
"""Of a codec's number in the attributes and the compressed records. Its exceptions pass through the decoder."""


class FetchedColumns(NamedTuple):
    """As in `records.Records`."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]


class AbortedTransaction(NamedTuple):
    """Attributes: first_offset: of its first record in the partition."""

    producer: int
    first_offset: int


def malformed(offset: int, what: str) -> MalformedBatch:
    return MalformedBatch(f"the record batch at offset {offset}: {what}")


class BatchDecoder:
    """Decodes the answer to a fetch of one partition, batch by batch.

    A batch of an older format ends it: the next fetch begins there. So does one that is cut off, as brokers do.

    Args:
        first: offset from which on records are wanted; a batch may begin below.
        committed_only: leave out the records of `aborted` transactions. Control records are always left out.
    Attributes:
        next_offset: where reading continues after what was taken.
        leader_epoch: of the last batch; −1: none.
        is_done: everything was taken.
    """

    def __init__(
        self, data: bytes, first: int, committed_only: bool, aborted: Sequence[AbortedTransaction],
        decompress: Decompress,
    ) -> None:  # fmt: skip
        self._data, self._first, self._decompress = data, first, decompress
        self._committed_only = committed_only
        self._aborted = sorted(aborted, key=lambda each: each.first_offset)
        self._aborting: set[int] = set()
        self._rows: list[tuple[int, int, bytes | None, bytes | None, Headers]] = []
        self._at, self._last, self._end = 0, -1, first
        self._fault: Exception | None = None
        self._is_read = False
        self.next_offset, self.leader_epoch = first, -1

    @property
    def is_done(self) -> bool:
        return self._is_read and not self._rows and self._fault is None

    def take(self, count: int) -> FetchedColumns:
        """The next `count` records, or fewer at the end.

        Raises:
            MalformedBatch: at the first record that cannot be read, and at each further call.
        """
        while len(self._rows) < count and not self._is_read:
            try:
                self._read_batch()
            except Exception as fault:
                self._fault, self._is_read = fault, True
        taken, self._rows = self._rows[:count], self._rows[count:]
        if not taken and self._fault is not None:
            raise self._fault
        self.next_offset = taken[-1][0] + 1 if self._rows else self._end
        return FetchedColumns(*map(list, zip(*taken, strict=True))) if taken else FetchedColumns((), (), (), (), ())

    def _read_batch(self) -> None:
        data, at = self._data, self._at
        if len(data) - at < PREFIX.size:
            self._is_read = True
            return
        base, size = PREFIX.unpack_from(data, at)
        end = at + PREFIX.size + size
        if size >= 5 and end <= len(data) and data[at + MAGIC_AT] < MAGIC:
            self._is_read = True
            return
        if size < HEAD.size - PREFIX.size:
            raise malformed(base, f"it has {size} bytes")
        if end > len(data):
            self._is_read = True
            return
        _, _, epoch, magic, checksum, attributes, delta, first_ms, last_ms, producer, _, _, count = HEAD.unpack_from(
            data, at
        )
        if magic != MAGIC:
            raise malformed(base, f"its format is {magic}")
        if google_crc32c.value(data[at + CHECKED_FROM : end]) != checksum:
            raise malformed(base, "its checksum is wrong")
        if not 0 <= base <= OFFSET_MAX or delta < 0 or count < 0:
            raise malformed(base, "its offsets or its number of records are out of range")
        is_control = bool(attributes & CONTROL)
        if self._passes(base + delta, producer, bool(attributes & TRANSACTIONAL), is_control):
            records = data[at + HEAD.size : end]
            if codec := attributes & CODEC_MASK:
                records = self._decompress(codec, records)
            reading = _BatchReading(records, base, delta, first_ms, last_ms if attributes & APPEND_TIME else None)
            rows = reading.rows(count, self._last)
            if not is_control:
                self._rows += [row for row in rows if row[0] >= self._first]
                self._last = rows[-1][0] if rows else self._last
            elif rows and len(rows[0][2] or b"") >= _ABORT.size and _ABORT.unpack_from(rows[0][2] or b"")[1] == 0:
                self._aborting.discard(producer)
        self._at, self.leader_epoch = end, epoch
        self._end = max(self._end, base + delta + 1)

    def _passes(self, last: int, producer: int, is_transactional: bool, is_control: bool) -> bool:
        """Whether the batch has to be read: it is not of an aborted transaction."""
        if not self._committed_only or producer < 0:
            return not is_control
        while self._aborted and self._aborted[0].first_offset <= last:
            self._aborting.add(self._aborted.pop(0).producer)
        return is_control or not (is_transactional and producer in self._aborting)


class _BatchReading:
    """The records of one batch. Args: append_ms: the broker's time of all records; None: each has its own."""

    def __init__(self, data: bytes, base: int, delta: int, first_ms: int, append_ms: int | None) -> None:
        self._data, self._at, self._end = data, 0, len(data)
        self._base, self._delta, self._first_ms, self._append_ms = base, delta, first_ms, append_ms

    def rows(self, count: int, last: int) -> list[tuple[int, int, bytes | None, bytes | None, Headers]]:
        """All records. Their offsets have to grow beyond `last`."""
        if count > len(self._data) // RECORD_SIZE_MIN:
            raise malformed(self._base, f"{count} records in {len(self._data)} bytes")
        rows = []
        for _ in range(count):
            row = self._row()
            if not last < row[0] <= self._base + self._delta:
                raise malformed(self._base, f"offset {row[0]} after {last}")
            rows.append(row)
            last = row[0]
        if self._at != len(self._data):
            raise malformed(self._base, f"{len(self._data) - self._at} bytes after its last record")
        return rows

    def _row(self) -> tuple[int, int, bytes | None, bytes | None, Headers]:
        self._end = len(self._data)
        size = self._number()
        if not RECORD_SIZE_MIN - 1 <= size <= self._end - self._at:
            raise malformed(self._base, f"a record of {size} bytes")
        self._end = self._at + size
        self._at += 1  # attributes, of which none is in use
        own_ms = self._first_ms + self._number()
        time_ms = own_ms if self._append_ms is None else self._append_ms
        offset = self._base + self._number()
        key, value = self._bytes(), self._bytes()
        header_count = self._number()
        if not 0 <= header_count <= (self._end - self._at) // HEADER_SIZE_MIN:
            raise malformed(self._base, f"a record with {header_count} headers")
        headers = [(self._name(), self._bytes()) for _ in range(header_count)]
        if self._at != self._end:
            raise malformed(self._base, f"{self._end - self._at} bytes after a record's headers")
        return offset, _signed(time_ms), key, value, headers or ()

    def _number(self) -> int:
        found = shift = 0
        while True:
            if self._at >= self._end or shift > 63:
                raise malformed(self._base, "a number that is cut off or too long")
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        found &= (1 << 64) - 1
        return found >> 1 ^ -(found & 1)

    def _bytes(self) -> bytes | None:
        size = self._number()
        if size < 0:
            return None
        if size > self._end - self._at:
            raise malformed(self._base, f"{size} bytes where fewer are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def _name(self) -> str:
        name = self._bytes()
        if name is None:
            raise malformed(self._base, "a header without a name")
        # Java's client would put other characters in place of bytes that are not UTF-8; so they can be put back.
        return name.decode("utf-8", "surrogateescape")


def _signed(number: int) -> int:
    """A number as 64 bits have it, as in Java."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
