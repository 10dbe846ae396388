"""A group's rate limit at the consumer proxy."""

import json

import pytest

from common.contract import Ack, Code
from tests.unit.consumer_proxy.pieces import answer, message, piece, receipt, record
from tests.unit.consumer_proxy.world import ID, World


@pytest.fixture
def world():
    made = World()
    limit(made, rate_messages=10)
    yield made
    made.view.close()


def limit(world, **rates):
    found = world.store.get("group", "billing")
    world.store.put("group", "billing", {**found.value, **rates}, found.version)


def deliveries(count):
    return answer([piece([record(message(), ID) for _ in range(count)])])


def pull(world, count, **fields):
    """A pull that is let through and brings so many."""
    world.call(**fields)
    world.source.answer(deliveries(count))
    response = world.response()
    assert (response.code, len(response.deliveries)) == (Code.OK, count)


def test_a_pull_is_cut_to_what_the_limit_has_left(world):
    world.call(max_messages=32)
    assert world.asked().max_messages == 10
    world.source.answer(deliveries(4))
    world.response()
    world.call(max_messages=32)
    assert world.asked().max_messages == 6


def test_over_the_limit_it_is_refused_with_the_time_to_wait(world):
    pull(world, 10)
    world.call()
    (held,) = world.held  # a token comes in 0.1 s: worth holding
    world.clock.advance(50)
    held[1](*held[2])
    response = world.response()
    assert (response.code, response.deliveries) == (Code.RATE_LIMITED, [])
    assert response.retry_after_ms == 50
    assert "rate limit of the group" in response.error


def test_a_held_pull_goes_on_when_there_is_room(world):
    pull(world, 10)
    world.call()
    ((seconds, function, arguments),) = world.held
    assert 0 < seconds <= 0.1
    world.clock.advance(110)
    function(*arguments)
    assert world.asked().max_messages == 1


def test_the_client_of_a_held_pull_may_leave(world):
    pull(world, 10)
    world.call()
    ((_, function, arguments),) = world.held
    world.connection.leave()
    function(*arguments)
    assert world.source.asked == []


def test_acknowledgements_are_taken_over_the_limit_too(world):
    limit(world, rate_messages=1)
    pull(world, 1)
    world.call(acks=[Ack(receipt=receipt(0))])
    assert world.held == []  # a second is too long to hold
    assert world.asked().max_messages == 0
    world.source.answer(answer([], codes=[0]))
    response = world.response()
    assert (response.code, [each.code for each in response.ack_results]) == (Code.RATE_LIMITED, [Code.OK])
    assert response.retry_after_ms == 1000


def test_a_pull_that_only_acknowledges_is_not_limited(world):
    pull(world, 10)
    world.call(max_messages=0, acks=[Ack(receipt=receipt(0))])
    world.source.answer(answer([], codes=[0]))
    assert world.response().code == Code.OK


def test_bytes_are_limited_too(world):
    limit(world, rate_messages=0, rate_bytes=2000)
    world.call(max_bytes=1 << 20)
    assert world.asked().max_bytes == 2000


def test_a_limit_taken_away_counts_for_the_next_pull(world):
    pull(world, 10)
    limit(world, rate_messages=0)
    world.call(max_messages=500)
    assert world.asked().max_messages == 500


def test_a_change_of_the_configuration_gives_no_new_burst(world):
    pull(world, 10)
    limit(world, invisible_ms=6000)
    world.call()
    assert world.source.asked == []
    assert len(world.held) == 1


def test_the_group_is_borrowed_from_the_lender(world):
    asked = []
    world.leases._ask = lambda payload, answer: asked.append(json.loads(payload))
    pull(world, 3)
    world.leases.tick()
    assert [(each["key"], each["total"]) for each in asked[0]["limits"]] == [("group:billing:messages", 10)]


def test_an_application_may_pull_from_its_networks_only_also_when_its_verdict_is_remembered(world):
    found = world.store.get("application", "shop")
    world.store.put("application", "shop", {**found.value, "addresses": ["10.0.0.0/8"]}, found.version)
    world.connection.peer = "10.1.1.1:5"
    pull(world, 1)
    world.connection.peer = "192.0.2.1:5"
    for fields in ({}, {"positions": []}):
        code, sentence = world.refused(**fields)
        assert code == Code.UNAUTHENTICATED
        assert "may not be used from 192.0.2.1" in sentence
