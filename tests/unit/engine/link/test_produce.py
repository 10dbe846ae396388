"""Payloads of a Kafka bridge: what one end encodes is what the other decodes; cut or lying bytes are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.link.errors import PayloadError
from engine.link.produce import (
    ProducedMessage,
    ProducedResult,
    decode_produce,
    decode_produced,
    encode_produce,
    encode_produced,
)

U32 = st.integers(0, (1 << 32) - 1)
ids = st.none() | st.binary(min_size=16, max_size=16)
TOPICS = ["orders", "zählung", ""]
messages = st.lists(
    st.builds(ProducedMessage, st.integers(0, 2), st.integers(-1, 1 << 30), ids, st.binary(max_size=50)), max_size=5
)
results = st.lists(
    st.builds(ProducedResult, st.integers(0, 500), U32, st.integers(-1, 1 << 62), st.text(max_size=20)), max_size=5
)


@given(U32, messages)
def test_a_request_is_read_as_it_was_written(patience_ms, sent):
    assert decode_produce(encode_produce("main", TOPICS, patience_ms, sent)) == ("main", TOPICS, patience_ms, sent)


@given(messages, st.integers(1, 40))
def test_a_cut_request_is_refused(sent, missing):
    payload = encode_produce("main", TOPICS, 2, sent)
    with pytest.raises(PayloadError, match="PRODUCE: "):
        decode_produce(payload[: max(0, len(payload) - missing)])


def test_a_request_with_bytes_behind_its_messages_is_refused():
    with pytest.raises(PayloadError, match="19 bytes where its messages take 18"):
        decode_produce(encode_produce("main", [], 2, []) + b"x")


def test_a_message_of_a_topic_that_the_request_does_not_name_is_refused():
    with pytest.raises(PayloadError, match="topic 1 of 1"):
        decode_produce(encode_produce("main", ["orders"], 2, [ProducedMessage(1, 0, None, b"")]))


@given(results)
def test_an_answer_is_read_as_it_was_written(told):
    assert decode_produced(encode_produced(told), len(told)) == told


@pytest.mark.parametrize("tail", [b"x", b"[]", b'{"7": "no such message"}', b'{"x": "no index"}'])
def test_a_damaged_answer_is_refused(tail):
    with pytest.raises(PayloadError):
        decode_produced(encode_produced([ProducedResult(0, 1, 2)]) + tail, 1)
    with pytest.raises(PayloadError):
        decode_produced(encode_produced([ProducedResult(0, 1, 2)]), 2)
