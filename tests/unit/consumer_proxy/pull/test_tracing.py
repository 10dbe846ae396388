"""Spans of deliveries and their acknowledgements, without sockets."""

import pytest

from common.contract import Ack, Code, Message, Verdict, encode_struct
from common.tracing.records import SpanQueue
from consumer_proxy.pull import tracing
from consumer_proxy.pull.tracing import PullTracing
from tests.unit.common.tracing.test_trace_context import PARENT, SPAN, TRACE
from tests.unit.consumer_proxy.pieces import answer, message, piece, record
from tests.unit.consumer_proxy.world import ID, World

SAMPLED = encode_struct(Message("orders", properties={"traceparent": f"00-{TRACE}-{SPAN}-01"}))
TWO = answer([piece([record(message(), ID), record(SAMPLED, ID)])])


def taken(queue):
    return list(iter(queue.take, None))


@pytest.fixture
def world():
    made = World()
    made.queue = SpanQueue(0.0, lambda: 0.5)
    made.pulls.tracing = PullTracing(made.queue)
    yield made
    made.view.close()


def delivered(world):
    world.call()
    world.source.answer(TWO)
    return world.response().deliveries


def test_a_delivery_belongs_to_its_messages_trace_and_its_acknowledgement_is_below_it(world):
    receipts = [each.receipt for each in delivered(world)]
    (deliver,) = taken(world.queue)
    assert (deliver.name, deliver.parent, deliver.attributes["penstock.offset"]) == ("deliver orders", PARENT, 1001)
    for verdict in (Verdict.EXTEND, Verdict.RETRY):
        world.call(acks=[Ack(receipts[0]), Ack(receipts[1], verdict)], max_messages=0)
        world.source.answer(answer([], codes=(0, 0)))
        assert world.response().code == Code.OK
    extended, retried = taken(world.queue)
    assert (extended.parent, extended.attributes["penstock.verdict"]) == (deliver, "EXTEND")
    assert (retried.name, retried.parent, retried.attributes["penstock.verdict"]) == (
        "acknowledge orders",
        deliver,
        "RETRY",
    )
    world.call(acks=[Ack(receipts[1])], max_messages=0)
    world.source.answer(answer([], codes=(0,)))
    assert world.response().code == Code.OK and taken(world.queue) == []  # it is known no more


def test_a_ratio_traces_all_deliveries_of_a_chosen_pull(world):
    world.pulls.tracing = PullTracing(SpanQueue(0.6, lambda: 0.5))
    world.queue = world.pulls.tracing._queue
    delivered(world)
    assert [each.parent for each in taken(world.queue)] == [None, PARENT]


def test_receipts_are_remembered_within_a_bound(world, monkeypatch):
    monkeypatch.setattr(tracing, "RECEIPTS_MAX", 2)
    many = answer([piece([record(SAMPLED, ID) for _ in range(5)])])
    world.call()
    world.source.answer(many)
    receipts = [each.receipt for each in world.response().deliveries]
    taken(world.queue)
    world.call(acks=[Ack(each) for each in receipts], max_messages=0)
    world.source.answer(answer([], codes=(0,) * 5))
    world.response()
    assert len(taken(world.queue)) == 2


def test_a_fault_of_the_tracing_costs_the_trace_and_not_the_pull(world, monkeypatch):
    monkeypatch.setattr(tracing, "decode_reply", None)
    assert len(delivered(world)) == 2 and taken(world.queue) == []
