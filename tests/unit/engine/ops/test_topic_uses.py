"""Requests that may leave no message note that their topics are in use."""

import json

import pytest

from engine.link import layout
from engine.link.claim import Claim, encode_claims
from engine.link.pull import encode_pull
from tests.unit.engine.test_node import Desk


@pytest.fixture
def desk():
    made = Desk()
    uses = made.node.delivery.creations.topic_uses
    for _ in range(2):
        list(uses.take())
    assert not uses.has(1)
    return made


@pytest.mark.parametrize(
    ("op", "payload"),
    [
        (layout.TOPIC, b'{"topics": [{"name": "orders", "queues": 1}]}'),
        (layout.CLAIM, encode_claims(layout.MEMORY, [Claim("orders", 1, "id", 0, 1000)])),
        (layout.CLAIM, encode_claims(layout.MEMORY, [Claim("orders", 1, "id", None, 1000)])),
        (layout.READ, json.dumps({"positions": [{"topic": "orders", "queue": 0, "offset": 0}]}).encode()),
        (layout.PULL, encode_pull("g", [("orders", 1)])),
        (layout.PULL, encode_pull("g", [("orders", 0)])),
    ],
    ids=["look-up", "claim", "claim of nothing", "read", "pull", "pull that creates nothing"],
)
def test_a_request_notes_its_topic(desk, op, payload):
    assert desk.ask(op, payload)[0] == layout.OK
    assert desk.node.delivery.creations.topic_uses.has(1)


def test_a_read_of_an_unknown_topic_notes_nothing(desk):
    payload = json.dumps({"positions": [{"topic": "missing", "queue": 0, "offset": 0}]}).encode()
    assert desk.ask(layout.READ, payload)[0] == layout.OK
    assert list(desk.node.delivery.creations.topic_uses.take()) == []


def test_the_node_looks_through_topics_only_when_they_expire(desk):
    assert desk.node._topics.due_ms is None
