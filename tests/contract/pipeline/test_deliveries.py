"""Both forms of the reader of deliveries, on the same replies: equal buffers, equal refusals."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.contract import Delivery, Message, PullResponse, encode_reply
from pipeline.errors import ReplyError
from pipeline.reply import deliveries as reference
from pipeline.reply.arrow import TYPES, record_batch
from pipeline.reply.columns import ALL, NAMES

native = pytest.importorskip("pipeline.reply._deliveries")

TEXT = st.text(max_size=12)
MESSAGES = st.builds(
    Message,
    topic=TEXT,
    body=st.none() | st.binary(max_size=30),
    key=st.none() | TEXT,
    tag=st.none() | TEXT,
    properties=st.none() | st.dictionaries(TEXT, TEXT, max_size=4),
    deliver_at_ms=st.none() | st.integers(0, 1 << 40),
)
DELIVERIES = st.builds(
    Delivery,
    receipt=st.binary(max_size=3),
    queue=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    attempt=st.integers(0, 9),
    stored_at_ms=st.integers(0, 1 << 42),
    id=TEXT,
    message=MESSAGES,
    reply_by_ms=st.none() | st.integers(0, 1 << 40),
    source=st.none() | TEXT,
)


def reply_of(deliveries):
    return encode_reply("pull", 7, PullResponse(code=0, deliveries=deliveries, ack_results=[], error="none"))


def row_of(each):
    message = each.message
    return {
        "topic": message.topic, "queue": each.queue, "offset": each.offset, "id": each.id, "key": message.key,
        "tag": message.tag, "body": message.body, "stored_at": each.stored_at_ms * 1000, "attempt": each.attempt,
        "properties": None if message.properties is None else sorted(message.properties.items()),
        "source": each.source,
    }  # fmt: skip


def rows_of(deliveries):
    batch = record_batch(deliveries, NAMES)
    batch.validate(full=True)
    at = batch.schema.get_field_index("stored_at")
    plain = batch.set_column(at, "stored_at", batch.column(at).cast(pa.int64())).to_pylist()
    return [row | {"properties": row["properties"] and sorted(row["properties"])} for row in plain]


@given(st.lists(DELIVERIES, max_size=20))
def test_both_forms_fill_the_same_buffers_and_every_field_is_in_them(deliveries):
    frame = reply_of(deliveries)
    read = native.read_deliveries(frame, ALL)
    assert read == reference.read_deliveries(frame, ALL)
    expected = [row_of(each) for each in deliveries]
    assert rows_of(read) == expected


@given(st.lists(DELIVERIES, max_size=3), st.sets(st.sampled_from(range(len(NAMES)))))
def test_both_forms_fill_only_the_columns_that_are_wanted(deliveries, wanted):
    frame, bits = reply_of(deliveries), sum(1 << each for each in wanted)
    read = native.read_deliveries(frame, bits)
    assert read == reference.read_deliveries(frame, bits)
    assert {number for number, column in enumerate(read.columns) if column is not None} == wanted


@given(st.lists(DELIVERIES, min_size=1, max_size=3), st.data())
def test_both_forms_refuse_the_same_damaged_frames(deliveries, data):
    frame = bytearray(reply_of(deliveries))
    for at in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=3)):
        frame[at] = data.draw(st.integers(0, 255))
    frame = bytes(frame[: data.draw(st.integers(0, len(frame)))])
    assert outcome(native, frame) == outcome(reference, frame)


def outcome(form, frame):
    try:
        return form.read_deliveries(frame, ALL)
    except ReplyError:
        return "refused"


def test_a_claim_of_four_billion_deliveries_is_refused_before_memory_is_allocated():
    frame = reply_of([]).replace(b"\x0f\x00\x02\x0c\x00\x00\x00\x00", b"\x0f\x00\x02\x0c\xff\xff\xff\xff")
    for form in (native, reference):
        with pytest.raises(ReplyError, match="malformed"):
            form.read_deliveries(frame, ALL)


def test_every_column_has_a_type():
    assert tuple(TYPES) == NAMES
