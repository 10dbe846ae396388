"""Record batches of format 2 as a broker sends them, written without the decoder: docs at common/kafka/decoding.py."""

import gzip
import struct
from typing import NamedTuple

import google_crc32c
from hypothesis import strategies as st

GZIP = 1
APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32


class WrittenRecord(NamedTuple):
    """`delta`: of its offset to the batch's first one."""

    delta: int
    time_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class WrittenBatch(NamedTuple):
    base: int
    records: list[WrittenRecord]
    last_delta: int
    first_ms: int = 1_700_000_000_000
    last_ms: int = 1_700_000_000_999
    attributes: int = 0
    producer: int = -1
    epoch: int = 3

    def rows(self) -> list[tuple]:
        """(offset, timestamp, key, value, headers) of each record."""
        return [
            (
                self.base + each.delta,
                self.last_ms if self.attributes & APPEND_TIME else self.first_ms + each.time_delta,
                each.key,
                each.value,
                [(name.decode("utf-8", "surrogateescape"), value) for name, value in each.headers],
            )
            for each in self.records
        ]

    def encode(self) -> bytes:
        records = b"".join(map(record, self.records))
        if self.attributes & 7 == GZIP:
            records = gzip.compress(records)
        return sealed(self, records, len(self.records))


def sealed(batch: WrittenBatch, records: bytes, count: int) -> bytes:
    """A batch with these bytes for its records, and the right checksum."""
    tail = struct.pack(
        ">hiqqqhii", batch.attributes, batch.last_delta, batch.first_ms, batch.last_ms, batch.producer, 0, -1, count
    )
    checked = tail + records
    head = struct.pack(">qiibI", batch.base, len(checked) + 9, batch.epoch, 2, google_crc32c.value(checked))
    return head + checked


def number(value: int) -> bytes:
    left, made = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*made, left])


def text(data: bytes | None) -> bytes:
    return number(-1) if data is None else number(len(data)) + data


def record(one: WrittenRecord) -> bytes:
    body = b"\0" + number(one.time_delta) + number(one.delta) + text(one.key) + text(one.value)
    body += number(len(one.headers)) + b"".join(text(name) + text(value) for name, value in one.headers)
    return number(len(body)) + body


def end_of_transaction(base: int, producer: int, is_commit: bool) -> WrittenBatch:
    """The control record of a coordinator."""
    marker = WrittenRecord(0, 0, struct.pack(">hh", 0, is_commit), b"\0" * 6, [])
    return WrittenBatch(base, [marker], 0, attributes=TRANSACTIONAL | CONTROL, producer=producer)


some_bytes = st.binary(max_size=20)
names = some_bytes | st.text(max_size=5).map(lambda name: name.encode("utf-8", "replace"))
written_records = st.builds(
    WrittenRecord,
    st.just(0),
    st.integers(0, 300) | st.integers(-(1 << 40), 1 << 40),
    st.none() | some_bytes,
    st.none() | st.binary(max_size=100),
    st.lists(st.tuples(names, st.none() | some_bytes), max_size=3),
)


@st.composite
def written_batches(draw: st.DrawFn) -> list[WrittenBatch]:
    """Batches of one partition, with the holes of compaction within and between them."""
    base, batches = draw(st.integers(0, 1 << 40)), []
    for _ in range(draw(st.integers(0, 3))):
        delta, records = draw(st.integers(0, 3)), []
        for each in draw(st.lists(written_records, max_size=3)):
            records.append(each._replace(delta=delta))
            delta += draw(st.integers(1, 3))
        batches.append(
            WrittenBatch(
                base, records, delta + draw(st.integers(0, 2)), draw(st.sampled_from((-1, 1_700_000_000_000))),
                attributes=draw(st.sampled_from((0, 0, APPEND_TIME, GZIP))), epoch=draw(st.integers(0, 9)),
            )
        )  # fmt: skip
        base += batches[-1].last_delta + 1 + draw(st.integers(0, 5))
    return batches
