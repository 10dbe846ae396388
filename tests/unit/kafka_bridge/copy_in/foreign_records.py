"""Records as any Kafka producer may write them, and messages as any application may send them, by chance."""

from typing import NamedTuple

from hypothesis import strategies as st

from common.contract import Message
from common.kafka.copy_mark import COPY_HEADER
from common.kafka.native import BatchDecoder
from common.kafka.records import Headers, Partition, Records
from engine.link.produce import RESERVED_PREFIX
from kafka_bridge.copy_in.messages import NULL_PROPERTY
from kafka_bridge.copy_in.packing import PackTarget
from kafka_bridge.mapping import ID_HEADER, TAG_HEADER
from tests.unit.common.kafka.record_batches import WrittenBatch, WrittenRecord

ASSIGNED = bytes(range(6)) + b"\xff" + bytes(range(9))
TARGET = PackTarget(b"orders", b"t" * 16, 3, "log", 12)


class ForeignRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
some_bytes = st.binary(max_size=40) | text.map(str.encode)
header_names = text | st.sampled_from(("a", "b", "penstock-key", COPY_HEADER, NULL_PROPERTY))
shown_ids = st.sampled_from((b"mine", ASSIGNED.hex().encode(), b"", b"\xff", b"ff" * 16, b"x" * 65, "ä".encode()))
tags = st.sampled_from((b"red", b"two words", b"", b"\x7f", b"x" * 129, "ä".encode()))
one_header = (
    st.tuples(header_names, st.none() | some_bytes)
    | st.tuples(st.just(ID_HEADER), shown_ids)
    | st.tuples(st.just(TAG_HEADER), tags)
)
keys = st.none() | some_bytes | st.sampled_from((b"\xff" * 3000, b"k" * 4096, b"k" * 4097))
foreign = st.builds(
    ForeignRecord,
    keys,
    st.none() | st.binary(max_size=200),
    st.lists(one_header, max_size=20) | st.just(()),
    st.sampled_from((-1, 0, 7, 1_700_000_000_123)) | st.integers(-1, 1 << 62),
)
sent_messages = st.builds(
    Message,
    topic=st.just("orders"),
    body=st.none() | st.binary(max_size=200),
    key=st.none() | text,
    tag=st.none() | st.sampled_from(("red", "grün")),
    id=text.filter(bool),
    properties=st.none()
    | st.dictionaries(text.filter(lambda name: not name.startswith(RESERVED_PREFIX)), text, max_size=8),
)


def columns(records: list[ForeignRecord], first_offset: int = 0, step: int = 1) -> Records:
    """One fetch of them, with a hole of `step` − 1 offsets before each next one."""
    offsets = [first_offset + step * number for number in range(len(records))]
    return Records(
        Partition("orders", 3),
        first_offset + step * len(records),
        offsets,
        [each.timestamp for each in records],
        [each.key for each in records],
        [each.value for each in records],
        [each.headers for each in records],
    )


def decoded(records: list[ForeignRecord], first_offset: int = 0) -> Records:
    """As `columns`, as a broker's bytes that were decoded."""
    rows = [
        WrittenRecord(
            number, each.timestamp, each.key, each.value, [(name.encode(), value) for name, value in each.headers]
        )
        for number, each in enumerate(records)
    ]
    batch = WrittenBatch(first_offset, rows, max(0, len(rows) - 1), first_ms=0)
    found = BatchDecoder(batch.encode(), first_offset, True, (), lambda codec, data: data).take(len(rows) + 1)
    return Records(Partition("orders", 3), first_offset + len(records), *found)
