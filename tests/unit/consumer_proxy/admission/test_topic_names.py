"""A pull that asks for names of topics: those that the application may pull from, page by page, and no message."""

import pytest

from common.contract import Ack, Code, Position
from consumer_proxy.admission import topic_names
from tests.unit.consumer_proxy.pieces import receipt
from tests.unit.consumer_proxy.world import World


@pytest.fixture
def world():
    made = World()
    yield made
    made.view.close()


def told(world, after="", **fields):
    world.call(topics_after=after, max_messages=0, **fields)
    response = world.response()
    assert (response.code, response.deliveries) == (Code.OK, [])
    assert world.source.asked == []
    return [(each.code, each.topic, each.queues, each.id_window_ms) for each in response.topics]


def test_topics_come_with_queues_and_window_and_without_those_that_have_no_grant(world):
    assert told(world) == [(Code.OK, "orders", 4, 600_000), (Code.OK, "refunds", 2, 600_000)]
    assert told(world, "orders") == [(Code.OK, "refunds", 2, 600_000)]
    assert told(world, "refunds") == []


def test_a_page_has_a_limit_and_the_next_one_begins_after_it(world, monkeypatch):
    monkeypatch.setattr(topic_names, "PAGE_MAX", 1)
    assert [name for _, name, *_ in told(world)] == ["orders"]
    assert [name for _, name, *_ in told(world, "orders")] == ["refunds"]


def test_a_topic_that_is_made_or_deleted_is_followed(world):
    told(world)
    world.store.put("topic", "gone", {"queues": 7, "id_window_ms": 0}, 0)
    world.store.delete("topic", "orders", world.store.get("topic", "orders").version)
    world.clock.advance(60_000)
    assert told(world) == [(Code.OK, "gone", 7, 0), (Code.OK, "refunds", 2, 600_000)]


@pytest.mark.parametrize(
    ("fields", "code", "sentence"),
    [
        ({"group": "other"}, Code.FORBIDDEN, "may not pull as group other"),
        ({"positions": [Position("orders", 0)]}, Code.INVALID, "topics_after: set it without positions and acks"),
        ({"acks": [Ack(receipt(1))]}, Code.INVALID, "topics_after: set it without positions and acks"),
    ],
)
def test_names_are_refused_without_a_grant_and_beside_other_wishes(world, fields, code, sentence):
    world.call(topics_after="", **fields)
    if "acks" in fields:  # they count all the same
        assert world.asked().acks
        return
    response = world.response()
    assert response.code == code
    assert sentence in response.error
