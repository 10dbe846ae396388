"""Reads by position from frame to reply."""

import pytest

from common.contract import Ack, Code, Position
from tests.unit.consumer_proxy.pieces import answer, message, piece, receipt, record, reports
from tests.unit.consumer_proxy.world import ID

ONE = answer([piece([record(message(), ID)])])


def test_a_read_by_position_leases_nothing_and_reports(world):
    world.call(
        positions=[Position("orders", 1, offset=5, end_offset=9), Position("orders", 2, at_time_ms=-1)], max_messages=10
    )
    assert world.asked() == {
        "positions": [
            {"topic": "orders", "queue": 1, "offset": 5, "end_offset": 9},
            {"topic": "orders", "queue": 2, "at_time_ms": -1},
        ],
        "max_messages": 10,
        "max_bytes": 1 << 20,
        "wait_ms": 0,
    }
    found = [
        {"code": 0, "next_offset": 6, "min_offset": 0, "end_offset": 8},
        {"code": Code.OFFSET_OUT_OF_RANGE, "min_offset": 3, "end_offset": 8, "error": "too old"},
    ]
    world.source.answer(reports(*found, pieces=[piece([record(message(), ID)], of=bytes(48), offset=5, queue=1)]))
    response = world.response()
    assert [(d.queue, d.offset, d.receipt) for d in response.deliveries] == [(1, 5, b"")]
    assert [(r.code, r.topic, r.queue) for r in response.positions] == [(0, "orders", 1), (107, "orders", 2)]
    assert (response.positions[0].next_offset, response.positions[1].min_offset) == (6, 3)
    assert response.positions[1].error == "too old"


@pytest.mark.parametrize(
    "position, code",
    [
        (Position("orders", 4), Code.INVALID),
        (Position("orders", -1), Code.INVALID),
        (Position("orders", 0, offset=-1), Code.INVALID),
        (Position("orders", 0, offset=1, end_offset=-1), Code.INVALID),
        (Position("orders", 0, at_time_ms=-3), Code.INVALID),
        (Position("orders", 0, offset=3, at_time_ms=1_795_342_983_000), Code.INVALID),
        (Position("gone", 0), Code.UNKNOWN_TOPIC),
        (Position("a/b", 0), Code.INVALID),
    ],
)
def test_a_wrong_position_is_reported_without_disturbing_the_others(world, position, code):
    world.call(positions=[position, Position("orders", 0)])
    if world.source.asked:
        assert len(world.asked()["positions"]) == 1
        world.source.answer(reports({"code": 0, "next_offset": 0, "min_offset": 0, "end_offset": 0}))
    response = world.response()
    if response.code == Code.OK:
        assert [r.code for r in response.positions] == [code, 0]
    else:
        assert response.code == code


def test_positions_of_a_topic_that_is_not_allowed_are_forbidden(world):
    assert world.refused(positions=[Position("orders", 0), Position("secret", 0)])[0] == Code.FORBIDDEN


def test_acks_of_a_read_by_position_are_taken_first(world):
    world.call(positions=[Position("orders", 0)], acks=[Ack(receipt(0)), Ack(b"")])
    assert world.asked().max_messages == 0
    world.source.answer(answer([], codes=(0,)))
    world.source.answer(reports({"code": 0, "next_offset": 1, "min_offset": 0, "end_offset": 1}))
    response = world.response()
    assert [r.code for r in response.ack_results] == [0, Code.STALE_RECEIPT]
    assert response.positions[0].end_offset == 1


def test_a_topic_that_the_engine_has_not_met_reads_as_empty(world):
    world.call(positions=[Position("orders", 0, offset=0), Position("orders", 1, offset=3)])
    world.source.answer(reports({"code": Code.UNKNOWN_TOPIC}, {"code": Code.UNKNOWN_TOPIC}))
    found = world.response().positions
    assert [(r.code, r.end_offset) for r in found] == [(0, 0), (Code.OFFSET_OUT_OF_RANGE, 0)]


@pytest.mark.parametrize("payload", [b"", b"\xff\xff\xff\xff{}", reports()])
def test_damaged_reports_are_unavailable(world, payload):
    world.call(positions=[Position("orders", 0)])
    world.source.answer(payload)
    assert world.response().code == Code.UNAVAILABLE


def test_a_read_that_does_not_fit_is_asked_again_for_less(world):
    large = [piece([record(message(body=bytes(4 << 20)), ID)] * 4, of=bytes(48))]
    world.call(positions=[Position("orders", 0, offset=0), Position("gone", 0)], max_bytes=12 << 20)
    world.source.answer(reports({"code": 0, "next_offset": 4}, pieces=large))
    assert world.connection.replies == []
    assert world.asked()["max_bytes"] == 6 << 20
    small = [piece([record(message(), ID)], of=bytes(48))]
    world.source.answer(reports({"code": 0, "next_offset": 1}, pieces=small))
    response = world.response()
    assert len(response.deliveries) == 1
    assert [(r.code, r.next_offset) for r in response.positions] == [(0, 1), (Code.UNKNOWN_TOPIC, None)]
