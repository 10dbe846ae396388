"""Requests of operators on the link: groups are moved and deleted, lag is told; both forms, on a real log."""

import json
import time

import pytest

from engine.link import layout
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from tests.contract.link_engine import ack, turn_until


def test_a_group_can_be_moved_with_a_preview(engine):
    engine.store(engine.topic(), 4)
    _, (piece,) = engine.pull()
    engine.pull(max_messages=0, acks=[ack(piece)])
    assert engine.admin("reset", group="g", topic="orders", to="earliest", preview=True)["moved"][0] == {
        "queue": 0,
        "old": 4,
        "new": 0,
    }
    assert engine.pull()[1] == []
    engine.admin("reset", group="g", topic="orders", to="earliest")
    assert engine.pull()[1][0].first_offset == 0
    assert engine.admin("groups") == {"groups": ["g"]}
    assert engine.admin("topics") == {"topics": [{"id": 1, "name": "orders", "queues": 2}]}


def test_a_group_can_be_moved_to_a_moment_and_by_a_number_of_messages(engine):
    topic = engine.topic()
    engine.store(topic, 4)
    between_ms = stored_ms(engine) + 1
    turn_until(lambda: time.time_ns() // 1_000_000 >= between_ms)
    engine.store(topic, 3)
    _, (*pieces,) = engine.pull()
    engine.pull(max_messages=0, acks=[ack(piece) for piece in pieces])

    def moved(to):
        return engine.admin("reset", group="g", topic="orders", to=to, queue=0)["moved"][0]

    assert moved({"time_ms": between_ms}) == {"queue": 0, "old": 7, "new": 4}
    assert moved({"shift": -3}) == {"queue": 0, "old": 4, "new": 1}
    assert moved({"shift": 2}) == {"queue": 0, "old": 1, "new": 3}
    assert moved({"shift": -(10**12)}) == {"queue": 0, "old": 3, "new": 0}
    assert moved({"shift": 10**12}) == {"queue": 0, "old": 0, "new": 7}
    assert moved(7) == {"queue": 0, "old": 7, "new": 7}
    assert moved({"time_ms": 0}) == {"queue": 0, "old": 7, "new": 0}
    assert engine.pull()[1][0].first_offset == 0


@pytest.mark.parametrize(
    "to",
    [None, "middle", -1, True, 1.5, {}, {"shift": "1"}, {"time_ms": -1}, {"shift": 1, "time_ms": 1}, {"shift": True}],
)
def test_a_place_to_move_to_that_makes_no_sense_is_refused_with_the_rule(engine, to):
    engine.topic()
    engine.pull()
    payload = json.dumps({"verb": "reset", "group": "g", "topic": "orders", "to": to}).encode()
    code, sentence = engine.ask(layout.ADMIN, payload)
    assert (code, sentence.partition(b":")[0]) == (layout.INVALID, b"to")


def test_an_offset_beyond_the_end_of_a_queue_is_refused_and_nothing_moves(engine):
    engine.store(engine.topic(), 4)
    _, (piece,) = engine.pull()
    engine.pull(max_messages=0, acks=[ack(piece)])
    for to, queue in ((5, 0), (1_795_342_983_000, 0), (4, None)):  # queue 1 is empty
        request = {"verb": "reset", "group": "g", "topic": "orders", "to": to, "queue": queue}
        code, sentence = engine.ask(layout.ADMIN, json.dumps(request).encode())
        assert (code, b"beyond the end of queue" in sentence) == (layout.INVALID, True), sentence
    assert engine.pull()[1] == []


def test_a_reset_of_a_group_that_never_pulled_is_refused_and_makes_no_group(engine):
    engine.store(engine.topic(), 1)
    payload = json.dumps({"verb": "reset", "group": "typo", "topic": "orders", "to": "latest"}).encode()
    code, sentence = engine.ask(layout.ADMIN, payload)
    assert (code, b"never pulled" in sentence) == (103, True)
    assert engine.admin("groups") == {"groups": []}


def test_a_groups_progress_is_deleted_unless_the_group_is_in_use(engine):
    engine.store(engine.topic(), 2)
    _, (piece,) = engine.pull(max_messages=1)
    request = json.dumps({"verb": "forget", "group": "g"}).encode()
    code, sentence = engine.ask(layout.ADMIN, request)
    assert (code, b"in use" in sentence) == (layout.INVALID, True)
    engine.pull(max_messages=0, acks=[ack(piece)])
    assert engine.admin("forget", group="g") == {"group": "g", "forgotten": 1}
    assert engine.admin("groups") == {"groups": []}
    assert engine.ask(layout.ADMIN, request)[0] == 103
    assert engine.pull()[1][0].first_offset == 0
    assert engine.admin("unused", days=0) == {"groups": []}


def test_lag_is_told_in_messages_in_bytes_and_by_the_oldest_ones_age(engine):
    topic = engine.topic()
    engine.store(topic, 4)
    _, (piece,) = engine.pull(max_messages=1)
    row = engine.admin("lag", group="g", detail=True)["queues"][0]
    one = len(piece.records)
    assert (row["lag"], row["in_flight"], row["lag_bytes"]) == (4, 1, 4 * one)
    assert 0 <= row["lag_s"] < 60
    engine.pull(max_messages=0, acks=[ack(piece, verdict=layout.RETRY, delay_ms=3_600_000)])
    given_back = engine.admin("lag", group="g", topic="orders", queue=0, offset=0)["queues"][0]
    assert (given_back["in_flight"], given_back["withheld"], given_back["message"]["state"]) == (1, 1, "waiting")
    turn_until(lambda: engine.admin("lag", group="g", detail=True)["queues"][0]["lag_s"] > row["lag_s"])
    engine.pull(max_messages=0, acks=[ack(piece)])
    _, pieces = engine.pull()
    engine.pull(max_messages=0, acks=[ack(each) for each in pieces])
    row = engine.admin("lag", group="g", detail=True)["queues"][0]
    assert (row["lag"], row["lag_bytes"], row["lag_s"]) == (0, 0, 0)


def stored_ms(engine):
    read = ReadQuestion([ReadPosition("orders", 0, offset=0)]).encode()
    return list(ReadAnswer.decode(engine.ask(layout.READ, read)[1]).pieces())[-1].stored_at_ms


@pytest.mark.parametrize(
    "request_",
    [b"", b"[]", b'{"verb": "nonsense"}', b'{"verb": "lag"}', b'{"verb": "lag", "group": "nobody"}', b"[" * 100_000],
)
def test_an_admin_request_that_makes_no_sense_is_answered_with_a_sentence(engine, request_):
    code, sentence = engine.ask(layout.ADMIN, request_)
    assert code in (100, 103) and sentence


def test_an_unknown_operation_is_invalid_and_the_link_goes_on(engine):
    assert engine.ask(77)[0] == layout.INVALID
    assert engine.admin("status")["connections"] == 1
