"""ADMIN's verbs for groups on a node: what is answered is kept."""

import json

from engine.link import layout
from engine.link.pull import encode_pull
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
