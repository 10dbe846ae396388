"""A message's `traceparent`: which texts name a sampled span, alone and in encoded messages."""

import argparse

import pytest

from common.contract import Message, encode_struct
from common.tracing.options import collector_url, ratio
from common.tracing.records import CLIENT, SpanQueue, SpanRecord
from common.tracing.trace_context import SpanParent, may_have_sampled, parent_of, sampled_parent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = SpanParent(int(TRACE, 16), int(SPAN, 16))
UNSAMPLED = tuple("02468ace")


def stored(text, **fields):
    return encode_struct(Message("orders", properties={"country": "IT", "traceparent": text}, **fields))


@pytest.mark.parametrize("digit", "0123456789abcdef")
def test_the_last_bit_of_the_flags_says_whether_a_span_is_sampled(digit):
    text = f"00-{TRACE}-{SPAN}-0{digit}"
    found = None if digit in UNSAMPLED else PARENT
    assert sampled_parent({"traceparent": text}) == parent_of(stored(text)) == found


@pytest.mark.parametrize(
    "text",
    [
        "", "x" * 55, f"00-{TRACE}-{SPAN}", f"00-{TRACE.upper()}-{SPAN}-01", f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-01x", f"00-{TRACE}-{SPAN}-01\n",
    ],
)  # fmt: skip
def test_another_text_names_no_span(text):
    assert sampled_parent({"traceparent": text}) is None and parent_of(stored(text)) is None


def test_a_message_without_properties_or_bytes_that_are_none_name_no_span():
    assert sampled_parent(None) is None and parent_of(encode_struct(Message("orders"))) is None
    good = stored(f"00-{TRACE}-{SPAN}-01")
    assert may_have_sampled(good)
    for cut in range(len(good)):
        parent_of(good[:cut])  # never raises
    assert parent_of(encode_struct(Message("orders", body=good))) is None  # a body that looks so


def test_a_full_queue_of_spans_loses_the_next_one_and_counts_it():
    came = []
    queue = SpanQueue(0.0, lambda: 0.0, lambda: came.append(1), size_max=2)
    records = [SpanRecord(str(number), CLIENT, None, 1, 2) for number in range(3)]
    for each in records:
        queue.put(each)
    assert (len(queue), queue.lost, len(came), queue.is_chosen()) == (2, 1, 2, False)
    assert [queue.take(), queue.take(), queue.take()] == [*records[:2], None]


def test_options_name_their_rule():
    assert collector_url("http://h:4318") == collector_url("http://h:4318/v1/traces") == "http://h:4318/v1/traces"
    assert (collector_url("https://h/x"), ratio("0.25")) == ("https://h/x", 0.25)
    for check, text in ((collector_url, "h:4318"), (collector_url, "grpc://h"), (ratio, "2"), (ratio, "all")):
        with pytest.raises(argparse.ArgumentTypeError, match="use"):
            check(text)
