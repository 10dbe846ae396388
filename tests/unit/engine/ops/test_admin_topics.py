"""`purge_topic` on a node: messages go, offsets go on, groups continue behind them."""

import json

import pytest

from engine.link import layout
from engine.link.acknowledgement import AckRange
from engine.link.codes import OK, STALE_RECEIPT
from engine.link.pull import decode_answer, encode_pull
from tests.unit.engine.test_node import Desk


@pytest.fixture
def desk():
    made = Desk()
    made.append(5)
    return made


def ask(desk, **request) -> dict:
    code, answer = desk.ask(layout.ADMIN, json.dumps({"verb": "purge_topic", "topic": "orders", **request}).encode())
    return json.loads(answer) if code == OK else {"code": code, "sentence": answer.decode()}


def pull(desk, group="g", acks=(), most=32, **options):
    return decode_answer(
        desk.ask(layout.PULL, encode_pull(group, [("orders", 1)], acks=acks, max_messages=most, **options))[1]
    )


def firsts(pieces) -> list[tuple[int, int]]:
    return [(piece.first_offset, piece.count) for piece in pieces]


def test_without_ends_the_messages_are_counted_and_stay(desk):
    assert ask(desk) == {"purged": [{"queue": 0, "first": 0, "end": 5}]}
    assert firsts(pull(desk)[1]) == [(0, 5)]


def test_only_what_was_counted_goes_and_every_group_continues_behind_it(desk):
    _, (held,) = pull(desk, "holder", most=2)
    pull(desk, "behind", most=1)
    desk.append(2)
    assert ask(desk, ends={"0": 5}) == {"purged": [{"queue": 0, "first": 0, "end": 5}]}
    for group in ("holder", "behind", "new"):
        assert firsts(pull(desk, group)[1]) == [(5, 2)], group
    codes, _ = pull(desk, "holder", [AckRange(held.token, 0, held.count)], 0)
    assert codes in ([OK], [STALE_RECEIPT])
    assert ask(desk, ends={"0": 5}) == {"purged": []}
    desk.append()
    assert firsts(pull(desk, "new")[1]) == [(7, 1)]


def test_a_purge_outlives_a_power_cut(desk):
    pull(desk, "holder", most=2)
    desk.world.run(500)
    ask(desk, ends={"0": 4})
    desk.engine.crash(power_cut=True)
    desk.engine.restart()
    desk.link = desk.engine.connect(desk.owner)
    desk.world.run(100)
    assert firsts(pull(desk, "new")[1]) == firsts(pull(desk, "holder")[1]) == [(4, 1)]


def test_a_reader_by_position_and_a_reset_find_nothing_below(desk):
    pull(desk, "g", most=1)
    ask(desk, ends={"0": 3})
    code, answer = desk.ask(
        layout.ADMIN, json.dumps({"verb": "reset", "group": "g", "topic": "orders", "to": 0}).encode()
    )
    assert (code, json.loads(answer)["moved"][0]["new"]) == (OK, 3)
    assert desk.node.store.bounds(1, 0) == (3, 5)
    assert firsts(pull(desk)[1]) == [(3, 2)]


@pytest.mark.parametrize("ends", [[], {"0": -1}, {"0": "5"}, 3])
def test_a_wrong_request_is_refused_and_deletes_nothing(desk, ends):
    assert "ends: " in ask(desk, ends=ends)["sentence"]
    assert ask(desk, topic="nothing")["code"] == 102
    assert firsts(pull(desk)[1]) == [(0, 5)]
