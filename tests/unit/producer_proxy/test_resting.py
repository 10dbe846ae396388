"""The timers that look at appends rest without messages; what they find after a rest is the same as without one."""

import time

import gevent
import pytest

import producer_proxy.proxy as proxy_module
from common.breaker import State
from common.contract import Code
from common.limits.queue_limit import QUEUE_S_MAX
from engine.client import append
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.send.desk import codes
from tests.unit.producer_proxy.test_broker_groups import Cluster, message

NOISE_S = 0.15  # of a busy machine


@pytest.fixture(params=["hot", "slow"])
def cluster(request, monkeypatch):
    if request.param == "hot" and proxy_module.Front is None:
        pytest.skip("the hot path is not built in this run")
    monkeypatch.setattr(append, "REST_S", 0.03)
    made = Cluster(request.param == "hot", monkeypatch)
    yield made
    made.close()


def looks_rest(cluster) -> bool:
    return cluster.targets._looking.rests


def appends_rest(cluster) -> bool:
    return all(broker.append.rests for broker in cluster.targets.listed)


def rest(cluster) -> None:
    """Wait until all timers rest, and set back their notes: the last look was a minute ago."""
    wait_until(lambda: looks_rest(cluster) and appends_rest(cluster))
    long_ago_s = time.monotonic() - 60
    cluster.targets._stalls.resume(long_ago_s)
    for broker in cluster.targets.listed:
        for lane in broker.append.lanes:
            lane.limit.resume(long_ago_s)


def send_to(cluster, name: str, **fields):
    """(codes, seconds that they took) of a message that only this group may take."""
    client, began = cluster.client(), time.monotonic()
    results = cluster.send(client, message(1, cluster.key_of(name)), **fields)
    return codes(results), time.monotonic() - began


def test_a_message_wakes_the_timers_and_without_another_they_rest_again(cluster):
    for _ in range(3):
        rest(cluster)
        assert send_to(cluster, "north")[0] == [Code.OK]
        assert not looks_rest(cluster)
        assert [broker.append.rests for broker in cluster.targets.listed] == [True, False, True]


def test_a_message_without_its_answer_keeps_them_awake(cluster):
    assert send_to(cluster, "north")[0] == [Code.OK]
    rest(cluster)
    north = cluster.targets.listed[1]
    cluster.brokers["north"].go.clear()
    sending = gevent.spawn(send_to, cluster, "north")
    wait_until(lambda: north.breaker.refusing)  # after a second, for which idle timers would not have gone on
    assert not looks_rest(cluster) and not north.append.rests
    cluster.brokers["north"].go.set()
    assert sending.get(timeout=10)[0] == [Code.OK]
    rest(cluster)


def test_a_lost_link_wakes_them_and_they_look_until_the_breaker_is_closed(cluster):
    rest(cluster)
    north = cluster.targets.listed[1]
    cluster.brokers["north"].break_links()
    wait_until(lambda: north.breaker.opened == 1)
    assert not looks_rest(cluster)
    rest(cluster)  # the link was opened again, and the share has grown step by step
    assert north.breaker.state is State.CLOSED
    cluster.brokers["north"].stop()
    wait_until(lambda: north.breaker.opened == 2 and appends_rest(cluster))
    assert not looks_rest(cluster)


def test_a_group_that_hangs_after_a_rest_is_isolated_and_its_calls_end_as_without_one(cluster):
    took = []
    for rests in (False, True):
        north = cluster.targets.listed[1]
        assert send_to(cluster, "north")[0] == [Code.OK]
        if rests:
            rest(cluster)
        cluster.brokers["north"].go.clear()
        began = time.monotonic()
        sending = gevent.spawn(send_to, cluster, "north", timeout_ms=400)
        wait_until(lambda north=north: north.breaker.state is State.OPEN)
        isolated_s = time.monotonic() - began
        found, ended_s = sending.get(timeout=10)
        assert found == [Code.TIMEOUT] and 0.4 <= ended_s < 0.4 + NOISE_S
        took.append((isolated_s, ended_s))
        cluster.brokers["north"].go.set()
        wait_until(cluster.all_closed)
    assert took[1] == pytest.approx(took[0], abs=NOISE_S)


def test_an_answer_after_a_rest_is_a_sample_of_the_queue_limit(cluster):
    limit = cluster.targets.listed[1].append.lanes[0].limit
    rest(cluster)
    cluster.brokers["north"].go.clear()
    sending = gevent.spawn(send_to, cluster, "north")
    wait_until(lambda: limit.is_stalled)
    cluster.brokers["north"].go.set()
    assert sending.get(timeout=10)[0] == [Code.OK]
    assert limit.bound_s == QUEUE_S_MAX  # it knows that this broker takes long


def test_a_message_that_is_taken_outside_of_a_loop_turn_counts_from_now(cluster):
    assert send_to(cluster, "north")[0] == [Code.OK]
    rest(cluster)
    lane = cluster.targets.listed[1].append.lanes[0]
    began, done = time.monotonic(), []
    cluster.targets.lanes[0].submit(
        [(cluster.proxy._known.get(b"orders"), cluster.queues_of("north")[0], None, b"\0")], done.append
    )
    assert began <= lane.oldest_taken_at <= time.monotonic()
    wait_until(lambda: done)
