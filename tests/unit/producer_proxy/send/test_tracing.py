"""Spans of sends, on the hot path's front, which passes traced calls on, and on the reference alone."""

import pytest

from common.contract import Code, Message
from common.tracing.records import SpanQueue
from common.tracing.trace_context import SpanParent
from producer_proxy.send import tracing
from tests.unit.common.tracing.test_trace_context import PARENT, SPAN, TRACE
from tests.unit.producer_proxy.send.desk import codes, credential, request


def sampled(body=b"", digit="1", topic="orders"):
    return Message(topic, body=body, properties={"a": "b", "traceparent": f"00-{TRACE}-{SPAN}-0{digit}"})


def taken(queue):
    return list(iter(queue.take, None))


@pytest.fixture
def fixed(desk):
    """A credential that the hot path knows."""
    made = credential()
    assert codes(desk.client().call(request(Message("orders"), credential=made))) == [Code.OK]
    return made


def test_only_messages_with_a_sampled_parent_have_spans_and_answers_are_the_same(desk, fixed):
    queue = SpanQueue(0.0, lambda: 0.5)
    desk.proxy.trace(queue)
    client = desk.client()
    for digit in "0123456789abcdef":
        (result,) = client.call(request(sampled(b"b" * 9, digit), credential=fixed))
        assert result.code == Code.OK
    assert len(taken(queue)) == 16  # of eight of them the send and the append
    results = client.call(
        request(Message("orders"), sampled(b"\0" * 100), Message("orders", body=b"x"), credential=fixed)
    )
    assert codes(results) == [Code.OK] * 3
    send, append = taken(queue)
    assert (send.name, send.parent, append.name, append.parent) == ("send orders", PARENT, "append orders", send)
    assert send.attributes["messaging.message.id"] == results[1].id and send.attributes["penstock.code"] == "OK"
    assert (
        append.attributes["penstock.offset"] == results[1].offset and send.attributes["messaging.client.id"] == "shop"
    )
    assert send.begin_ns <= append.begin_ns <= append.end_ns <= send.end_ns and not send.fault


def test_a_ratio_traces_its_part_of_the_calls_whatever_they_carry(desk, fixed):
    chances = iter([0.1, 0.9] * 50)
    queue = SpanQueue(0.5, lambda: next(chances))
    desk.proxy.trace(queue)
    client = desk.client()
    for _ in range(10):
        assert codes(client.call(request(Message("orders"), credential=fixed))) == [Code.OK]
    spans = taken(queue)
    assert [each.parent for each in spans if each.name == "send orders"] == [None] * 5
    assert len(spans) == 10


def test_refused_messages_have_their_fault_and_no_append(desk, fixed):
    queue = SpanQueue(0.0, lambda: 0.5)
    desk.proxy.trace(queue)
    assert codes(desk.client().call(request(sampled(topic="other"), credential=fixed))) == [Code.FORBIDDEN]
    (span,) = taken(queue)
    assert span.attributes["penstock.code"] == "FORBIDDEN" and span.fault and isinstance(span.parent, SpanParent)


def test_a_fault_of_the_tracing_costs_the_trace_and_not_the_call(desk, fixed, monkeypatch):
    queue = SpanQueue(1.0, lambda: 0.0)
    desk.proxy.trace(queue)
    client = desk.client()
    for name in ("parent_of", "name_of"):
        with monkeypatch.context() as broken:
            broken.setattr(tracing, name, None)
            assert codes(client.call(request(sampled(), credential=fixed))) == [Code.OK]
    assert taken(queue) == []


def test_a_large_batch_has_a_bounded_number_of_spans(desk, fixed):
    queue = SpanQueue(0.0, lambda: 0.5)
    desk.proxy.trace(queue)
    results = desk.client().call(request(*[sampled() for _ in range(150)], credential=fixed))
    assert codes(results) == [Code.OK] * 150 and len(taken(queue)) == 2 * tracing.SPANS_PER_CALL_MAX
