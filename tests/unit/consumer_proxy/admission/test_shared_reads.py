"""Pulls of groups that read a topic on two sides: their scope, their sources, and groups that have none."""

import pytest

from common.placement import topic_hash
from engine.link.receipt import NO_TOKEN
from tests.unit.consumer_proxy.pieces import answer, message, piece, record, token
from tests.unit.consumer_proxy.world import World

HIDDEN = "_kafka.billing.orders"
ENTRY = {"group": "billing", "topic": "orders", "cluster": "main", "queues": 3, "made_ms": 9}
ORDERED = {"topics": ["orders"], "order": "key"}


@pytest.fixture
def world():
    return World()


def share(world, **changes):
    found = world.store.get("shared_read", HIDDEN)
    world.store.put("shared_read", HIDDEN, {**ENTRY, **changes}, found.version if found else 0)


def put_group(world, value):
    world.store.put("group", "billing", value, world.store.get("group", "billing").version)


def scope(world, **call):
    world.call(**call)
    found = world.asked().topics
    world.source.answer(answer([]))
    world.response()
    return found


def test_one_pull_leases_from_both_sides_while_the_group_reads_both(world):
    assert scope(world) == (("orders", 4),)
    share(world)
    assert scope(world, topics=["orders", "refunds"]) == (("orders", 4), ("refunds", 2), (HIDDEN + "@9", 3))
    assert scope(world, topics=None) == (("orders", 4), (HIDDEN + "@9", 3))
    assert scope(world, topics=["refunds"]) == (("refunds", 2),)
    assert scope(world, group="hollow") == (("orders", 4),)
    world.store.delete("shared_read", HIDDEN, world.store.get("shared_read", HIDDEN).version)
    assert scope(world) == (("orders", 4),)


@pytest.mark.parametrize("order", ["key", "queue"])
def test_a_group_with_an_order_reads_kafkas_side_alone_until_it_is_drained(world, order):
    put_group(world, {**ORDERED, "order": order})
    share(world)
    assert scope(world) == ((HIDDEN + "@9", 3),)
    share(world, is_drained=True)
    assert scope(world) == (("orders", 4), (HIDDEN + "@9", 3))


def test_deliveries_tell_their_source_where_the_group_reads_both_sides(world):
    def sources(*names):
        pieces = [
            piece([record(message())], of=NO_TOKEN if name is None else token(topic_hash=topic_hash(name)))
            for name in names
        ]
        world.call(topics=["orders", "refunds"])
        world.source.answer(answer(pieces))
        return [each.source for each in world.response().deliveries]

    assert sources(b"orders", b"refunds") == [None, None]
    share(world)
    assert sources(b"orders", b"refunds", HIDDEN.encode()) == ["engine", None, "kafka:main"]


def test_a_hidden_topic_cannot_be_pulled_by_its_name(world):
    share(world)
    world.put_app(
        [], version=world.store.get("application", "shop").version, pull_grants=[["topic", "*"], ["group", "*"]]
    )
    code, sentence = world.refused(topics=[HIDDEN])
    assert (code, sentence) == (102, f"there is no topic {HIDDEN}")
