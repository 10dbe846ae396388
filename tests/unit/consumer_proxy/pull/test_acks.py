"""Acknowledgements that ride along with a pull."""

import pytest

from common.contract import Ack, Code, Position, Verdict
from engine.link.acknowledgement import AckRange
from tests.unit.consumer_proxy.pieces import answer, message, piece, receipt, record, token
from tests.unit.consumer_proxy.world import ID

ONE = answer([piece([record(message(), ID)])])


def test_acks_ride_along_and_come_back_one_by_one(world):
    acks = [Ack(receipt(0)), Ack(receipt(1)), Ack(b"junk"), Ack(receipt(5), Verdict.RETRY, 250, "busy")]
    world.call(acks=acks, max_messages=0)
    assert world.asked().acks == [
        AckRange(token(), 0, 2, Verdict.DONE, -1),
        AckRange(token(), 5, 1, Verdict.RETRY, 250, b"busy"),
    ]
    world.source.answer(answer([], codes=(0, Code.STALE_RECEIPT)))
    results = world.response().ack_results
    assert [r.code for r in results] == [0, 0, Code.STALE_RECEIPT, Code.STALE_RECEIPT]


@pytest.mark.parametrize(
    "fields, code",
    [
        ({"topics": ["gone"]}, Code.UNKNOWN_TOPIC),
        ({"topics": ["orders", "secret"]}, Code.FORBIDDEN),
        ({"group": "hollow", "topics": None}, Code.UNKNOWN_GROUP),
        ({"max_messages": 10_001}, Code.INVALID),
        ({"invisible_ms": 999}, Code.INVALID),
        ({"topics": [], "positions": [Position("secret", 0)]}, Code.FORBIDDEN),
    ],
)
def test_acknowledgements_count_whatever_else_is_wrong_with_the_pull(world, fields, code):
    world.call(acks=[Ack(receipt(0)), Ack(b""), Ack(receipt(5), Verdict.RETRY)], **fields)
    asked = world.asked()
    assert (asked.max_messages, asked.topics) == (0, ())
    assert asked.acks == [AckRange(token(), 0, 1, Verdict.DONE, -1), AckRange(token(), 5, 1, Verdict.RETRY, -1)]
    world.source.answer(answer([], codes=(0, 0)))
    response = world.response()
    assert (response.code, response.deliveries) == (code, [])
    assert response.error
    assert [r.code for r in response.ack_results] == [0, Code.STALE_RECEIPT, 0]
    assert [r.error is None for r in response.ack_results] == [True, False, True]


@pytest.mark.parametrize(
    "fields, code",
    [
        ({"group": "theirs"}, Code.FORBIDDEN),
        ({"max_messages": -1}, Code.INVALID),
        ({"topics": ["a/b"]}, Code.INVALID),
    ],
)
def test_acknowledgements_that_were_not_looked_at_say_so(world, fields, code):
    world.call(acks=[Ack(receipt(0)), Ack(b"")], **fields)
    response = world.response()
    assert world.source.asked == []
    assert response.code == code
    assert {(r.code, "not looked at" in r.error) for r in response.ack_results} == {(code, True)}


@pytest.mark.parametrize("topics", [["orders"], ["orders", "gone"], ["secret", "orders"]])
def test_a_call_that_only_acknowledges_depends_on_no_topic(world, topics):
    world.call(acks=[Ack(receipt(0))], topics=topics, max_messages=0)
    assert world.asked().topics == (("orders", 4),)
    world.source.answer(answer([], codes=(0,)))
    response = world.response()
    assert (response.code, [r.code for r in response.ack_results], response.topics) == (Code.OK, [Code.OK], None)


def test_acknowledgements_of_a_forged_credential_are_not_looked_at(world):
    world.call(acks=[Ack(receipt(0))], credential=world.credential(secret="x" * 43))
    (result,) = world.response().ack_results
    assert (result.code, "not looked at" in result.error) == (Code.UNAUTHENTICATED, True)
    assert world.source.asked == []
