"""ADMIN's verbs for groups on a node: what is answered is kept."""

import json

from engine.link import layout
from engine.link.pull import decode_answer, encode_pull
from tests.unit.engine.test_node import Desk


def test_a_reset_is_answered_only_when_a_power_cut_cannot_take_it_back():
    desk = Desk()
    desk.ask(layout.PULL, encode_pull("readers", [("payroll", 1)]))
    request = {"verb": "reset", "group": "readers", "topic": "payroll", "to": "latest"}
    durable = []
    store = desk.node.store
    when_durable = store.when_durable
    store.when_durable = lambda position, callback: durable.append(position) or when_durable(position, callback)
    desk.ask(layout.ADMIN, json.dumps(request).encode())
    assert durable[-1] == store.end_position


def test_the_lag_of_a_queue_tells_the_state_of_one_message():
    desk = Desk()
    desk.append(4)

    def state(offset: object) -> dict:
        request = {"verb": "lag", "group": "readers", "topic": "orders", "queue": 0, "offset": offset}
        code, payload = desk.ask(layout.ADMIN, json.dumps(request).encode())
        return json.loads(payload)["queues"][0]["message"] if code == layout.OK else {"fault": payload.decode()}

    assert desk.ask(layout.PULL, encode_pull("readers", [("orders", 1)]))[0] == layout.OK
    delivered = state(0)
    assert (delivered["state"], delivered["attempts"]) == ("leased", 1) and 0 < delivered["left_ms"] <= 60_000
    assert state(99) == {"state": "undelivered"}
    assert "whole number" in state(-1)["fault"] and "whole number" in state("x")["fault"]


def test_a_reset_may_create_the_group_and_a_preview_does_not():
    desk = Desk()
    desk.append(3)
    request = {"verb": "reset", "group": "new", "topic": "orders", "to": 2}

    def answer(**more):
        code, payload = desk.ask(layout.ADMIN, json.dumps({**request, **more}).encode())
        return code, json.loads(payload)["moved"] if code == layout.OK else payload.decode()

    for more in ({}, {"create": True, "preview": True}):
        code, told = answer(**more)
        assert code == 103 and "it has never pulled" in told
    assert answer(create=True) == (layout.OK, [{"queue": 0, "old": 0, "new": 2}])
    code, payload = desk.ask(layout.PULL, encode_pull("new", [("orders", 1)]))
    assert (code, decode_answer(payload)[1][0].first_offset) == (layout.OK, 2)


def test_a_reset_to_offsets_by_queue_moves_just_those_and_all_of_them_or_none():
    desk = Desk()
    desk.append(3)
    assert desk.ask(layout.PULL, encode_pull("readers", [("orders", 1)]))[0] == layout.OK

    def answer(offsets):
        request = {"verb": "reset", "group": "readers", "topic": "orders", "to": {"offsets": offsets}}
        code, payload = desk.ask(layout.ADMIN, json.dumps(request).encode())
        return json.loads(payload)["moved"] if code == layout.OK else payload.decode()

    for wrong in ("0:2", [2], {"0": -1}, {"0": "2"}, {"0": True}):
        assert '"offsets"' in answer(wrong)
    assert "use their numbers" in answer({"0": 2, "99": 0})
    assert "beyond the end of queue 0" in answer({"0": 4})
    assert answer({"0": 2}) == [{"queue": 0, "old": 0, "new": 2}], "nothing was moved before"
    desk.append(1)
    assert answer({"0": 3}) == [{"queue": 0, "old": 2, "new": 3}], "not to what is the end by now"
