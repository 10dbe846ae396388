"""Changes of the configuration while pulls wait: a permission that is taken away, a topic that is created."""

import pytest

from common.contract import Ack, Code, Position
from tests.unit.consumer_proxy.pieces import answer, message, piece, receipt, record
from tests.unit.consumer_proxy.world import ID

GRANTS = [("topic", "orders"), ("topic", "refunds"), ("topic", "gone"), ("group", "billing")]


def change(world, kind, name, **fields):
    found = world.store.get(kind, name)
    world.store.put(kind, name, {**found.value, **fields}, found.version)


def revoke_the_key(world):
    change(world, "application", "shop", keys=[])


def take_the_topic(world):
    change(world, "application", "shop", pull_grants=[list(each) for each in GRANTS if each[1] != "orders"])


def take_the_group(world):
    change(world, "application", "shop", pull_grants=[list(each) for each in GRANTS if each[0] != "group"])


REFUSALS = {
    revoke_the_key: Code.UNAUTHENTICATED,
    take_the_topic: Code.FORBIDDEN,
    take_the_group: Code.FORBIDDEN,
}


def follow(world):
    """What the proxy does after a change."""
    world.pulls.changes.follow()
    while world.held:
        _, function, arguments = world.held.pop(0)
        function(*arguments)


def messages(count, codes=()):
    return answer([piece([record(message(), ID) for _ in range(count)])], codes=list(codes))


@pytest.mark.parametrize("take", REFUSALS, ids=lambda take: take.__name__)
def test_a_pull_that_waits_is_refused_and_its_acknowledgements_count(world, take):
    world.call(wait_ms=20_000, acks=[Ack(receipt=receipt(0))])
    take(world)
    follow(world)
    assert world.source.cancelled == [1]
    world.source.answer(answer([], codes=[0]))
    response = world.response()
    assert (response.code, response.deliveries) == (REFUSALS[take], [])
    assert [each.code for each in response.ack_results] == [Code.OK]


@pytest.mark.parametrize("take", REFUSALS, ids=lambda take: take.__name__)
def test_messages_that_come_after_the_change_are_given_back(world, take):
    world.call(wait_ms=20_000)
    take(world)
    world.source.answer(messages(3))
    assert (world.response().code, world.stats.given_back) == (REFUSALS[take], 3)
    assert len(world.source.told) == 1


@pytest.mark.parametrize("take", REFUSALS, ids=lambda take: take.__name__)
def test_a_read_by_position_that_waits_is_refused_too(world, take):
    world.call(wait_ms=20_000, positions=[Position(topic="orders", queue=0, offset=0)])
    take(world)
    follow(world)
    assert world.source.cancelled == [1]


def test_a_pull_that_waits_for_a_topic_that_is_created_is_answered(world):
    world.call(wait_ms=20_000, topics=["orders", "gone"])
    world.store.put("topic", "gone", {"queues": 1}, 0)
    follow(world)
    assert world.source.cancelled == [1]
    world.source.answer(answer([]))
    response = world.response()
    assert (response.code, response.deliveries) == (Code.OK, [])
    world.call(topics=["orders", "gone"])
    assert len(world.asked().topics) == 2


def test_a_change_of_another_thing_ends_no_wait(world):
    world.call(wait_ms=20_000, topics=["orders", "gone"])
    for number in range(3):
        world.store.put("topic", f"other-{number}", {"queues": 1}, 0)
        follow(world)
    assert world.source.cancelled == []
    world.source.answer(messages(2))
    assert len(world.response().deliveries) == 2


def test_a_credential_that_has_ended_by_its_time_does_not_fail_its_last_call(world):
    world.call(wait_ms=20_000)
    world.clock.advance(400_000)
    change(world, "group", "billing", invisible_ms=6000)
    world.source.answer(messages(1))
    response = world.response()
    assert (response.code, response.deliveries, world.stats.given_back) == (Code.OK, [], 1)


def test_all_pulls_that_wait_are_looked_at_a_few_at_a_time(world):
    for _ in range(120):
        world.call(wait_ms=20_000)
    revoke_the_key(world)
    world.pulls.changes.follow()
    sizes = []
    while world.held:
        before = len(world.source.cancelled)
        _, function, arguments = world.held.pop(0)
        function(*arguments)
        sizes.append(len(world.source.cancelled) - before)
    assert sizes == [50, 50, 20]
