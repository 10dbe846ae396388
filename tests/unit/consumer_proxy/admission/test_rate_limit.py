"""A group's rate limit at the consumer proxy."""

import json

import pytest

from common.contract import Ack, Code, decode_reply
from engine.link.pull import decode_request
from tests.unit.consumer_proxy.fakes import FakeConnection
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


def waiting_pulls(world, count, **fields):
    """Connections whose pulls wait at the source; they share what the limit has left."""
    connections = [FakeConnection() for _ in range(count)]
    for connection in connections:
        world.call(connection, max_messages=32, **fields)
    return connections


def answered(connection):
    """(code, number of deliveries) of its reply; None: it has none yet."""
    if not connection.replies:
        return None
    response = decode_reply(connection.replies[0], int.from_bytes(connection.replies[0][12:16], "big"))
    return response.code, len(response.deliveries)


def test_waiting_pulls_share_the_limit_and_their_replies_are_held_for_their_tokens(world):
    connections = waiting_pulls(world, 25, wait_ms=5000)
    wanted = [decode_request(request).max_messages for _, request, _ in world.source.asked]
    assert wanted[:4] == [10, 5, 3, 2] and min(wanted) == 1
    for _ in range(25):
        world.source.answer(deliveries(wanted.pop(0)))
    at_once = sum(answer[1] for each in connections if (answer := answered(each)))
    assert at_once == 10
    held, world.held = world.held, []
    assert held and max(seconds for seconds, _, _ in held) <= 1.0
    for _, function, arguments in held:
        function(*arguments)
    delivered = sum(answered(each)[1] for each in connections)
    assert 10 < delivered <= 20, "the bucket, and what comes in the second for which replies are held"
    refused = [each for each in connections if answered(each)[0] == Code.RATE_LIMITED]
    assert refused and all(answered(each)[1] == 0 for each in refused)
    assert world.stats.given_back == 10 + 5 + sum([3, 2, 2] + [1] * 20) - delivered


def test_the_client_of_a_held_reply_may_leave_and_its_messages_are_given_back(world):
    first, second = waiting_pulls(world, 2, wait_ms=5000)
    world.source.answer(deliveries(10))
    world.source.answer(deliveries(5))
    ((seconds, function, arguments),) = world.held
    assert seconds == pytest.approx(0.5) and answered(first) == (Code.OK, 10)
    second.leave()
    function(*arguments)
    assert second.replies == [] and world.stats.given_back == 5 and world.pulls.waiting == 0


def test_a_single_consumer_has_the_whole_limit(world):
    pull(world, 10)
    world.clock.advance(1000)
    world.call(max_messages=32)
    assert world.asked().max_messages == 10
