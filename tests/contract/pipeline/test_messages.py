"""Both forms of the encoder of messages and of the reader of results: equal bytes, as the contract's library reads them."""

from array import array

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thriftpy2.thrift import TException

from common.contract import Credential, Message, SendResponse, SendResult, decode_call, encode_reply
from common.credential import mint
from pipeline.errors import ReplyError
from pipeline.sink import messages as reference
from pipeline.sink.columns import MessageColumns, map_column, text_column
from pipeline.sink.sends import send_frame

native = pytest.importorskip("pipeline.sink._messages")

FORMS = [pytest.param(native, id="native"), pytest.param(reference, id="reference")]
TEXT = st.text(max_size=9)
ROWS = st.lists(
    st.tuples(TEXT, st.none() | st.binary(max_size=20), st.none() | TEXT, st.none() | TEXT,
              st.none() | st.dictionaries(TEXT, TEXT, max_size=3), TEXT),
    min_size=1, max_size=30,
)  # fmt: skip
MAP = pa.map_(pa.string(), pa.string())


def columns_of(rows, first=0):
    topic, body, key, tag, properties, ids = zip(*rows, strict=True)
    maps = pa.array([None if each is None else list(each.items()) for each in properties], MAP)
    texts = [pa.array(each, pa.string()) for each in (topic, key, tag, ids)]
    body = pa.array(body, pa.binary())[first:]
    topic, key, tag, ids = (text_column(each[first:]) for each in texts)
    return MessageColumns(topic, text_column(body), key, tag, map_column(maps[first:]), ids)


@given(ROWS, st.data())
def test_both_forms_encode_the_same_call_and_the_contracts_library_reads_the_rows(rows, data):
    skipped = data.draw(st.integers(0, len(rows) - 1))
    columns = columns_of(rows, skipped)
    chosen = array("I", range(len(rows) - skipped))
    encoded = native.encode_messages(columns, chosen, 0, 1 << 30)
    assert encoded == reference.encode_messages(columns, chosen, 0, 1 << 30)
    frame = send_frame(encoded, Credential(*mint("app", "key", "secret", 1)), 500, 2)
    _, _, arguments = decode_call(frame)
    request = arguments.request
    assert (request.timeout_ms, request.durability, request.credential.app) == (500, 2, "app")
    assert request.messages == [
        Message(topic=topic, body=body, key=key, tag=tag, properties=properties, id=each)
        for topic, body, key, tag, properties, each in rows[skipped:]
    ]


@given(ROWS, st.integers(1, 200))
def test_both_forms_cut_calls_at_the_same_rows_and_every_call_has_one(rows, bytes_max):
    columns, chosen, first, seen = columns_of(rows), array("I", range(len(rows))), 0, []
    while first < len(rows):
        encoded = native.encode_messages(columns, chosen, first, bytes_max)
        assert encoded == reference.encode_messages(columns, chosen, first, bytes_max)
        assert encoded.message_count == 1 or len(encoded.data) <= bytes_max
        first += encoded.message_count
        seen.append(encoded.data)
    assert b"".join(seen) == native.encode_messages(columns, chosen, 0, 1 << 30).data


@pytest.mark.parametrize("rows", [array("I", [3]), array("I", [2**32 - 1])])
def test_a_row_past_the_end_is_refused_by_the_native_form_before_it_is_read(rows):
    columns = columns_of([("t", b"", None, None, None, "i")] * 3)
    with pytest.raises(ValueError, match="before the row"):
        native.encode_messages(columns, rows, 0, 100)


RESULTS = st.lists(
    st.builds(SendResult, code=st.sampled_from([0, 1, 2, 100, 105, 200, 201, 300, 400]), id=st.none() | TEXT,
              queue=st.none() | st.integers(0, 9), offset=st.none() | st.integers(0, 1 << 40),
              retry_after_ms=st.none() | st.integers(0, 1 << 20), error=st.none() | TEXT),
    max_size=20,
)  # fmt: skip


@given(RESULTS)
def test_both_forms_read_the_same_results(results):
    frame = encode_reply("send", 1, SendResponse(results=results))
    read = native.read_results(frame)
    assert read == reference.read_results(frame)
    assert read.stored == sum(each.code < 100 for each in results)
    assert [each.row for each in read.failed] == [index for index, each in enumerate(results) if each.code >= 100]


@given(RESULTS.filter(bool), st.data())
def test_a_reply_that_is_cut_off_is_refused(results, data):
    frame = encode_reply("send", 1, SendResponse(results=results))
    with pytest.raises((ReplyError, TException)):
        native.read_results(frame[: data.draw(st.integers(0, len(frame) - 4))])
