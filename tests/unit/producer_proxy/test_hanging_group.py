"""First messages to topics while one of three broker groups hangs: stored at another group, or refused, both at once."""

import time

import pytest

import producer_proxy.proxy as proxy_module
from common.breaker import State
from common.config.definitions import TopicDefinition
from common.contract import Code, Message
from common.keyhash import queue_of
from engine.client.brokers import Broker
from producer_proxy.targets import engine_topics
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.send.desk import codes
from tests.unit.producer_proxy.test_broker_groups import QUEUES, Cluster

AT_ONCE_S = 0.15


@pytest.fixture(params=["hot", "slow"])
def cluster(request, monkeypatch):
    if request.param == "hot" and proxy_module.Front is None:
        pytest.skip("the hot path is not built in this run")
    made = Cluster(request.param == "hot", monkeypatch)
    yield made
    wake(made)
    made.close()


def hang(cluster, name: str = "north") -> Broker:
    cluster.brokers[name].go.clear()
    cluster.brokers[name].resolves.clear()
    return next(each for each in cluster.targets.listed if each.name == name)


def wake(cluster) -> None:
    for broker in cluster.brokers.values():
        broker.go.set()
        broker.resolves.set()


def define(cluster, name: str, queues: int = QUEUES) -> str:
    cluster.store.put("topic", name, TopicDefinition(name, queues, "memory").to_value(), 0)
    wait_until(lambda: cluster.view.topic(name) is not None)
    return name


def topic_at(cluster, home: str, start: int = 0) -> str:
    """A new topic whose only queue lives in this group."""
    names = (f"single-{number}" for number in range(start, start + 1000))
    return define(cluster, next(name for name in names if cluster.home(name, 0) == home), 1)


def timed(cluster, client, *messages, **fields):
    """(results, seconds that they took)."""
    began = time.monotonic()
    results = cluster.send(client, *messages, **fields)
    return results, time.monotonic() - began


def silence(cluster, client) -> Broker:
    """Let one first message find out that the group hangs; nothing is sent to it, so its breaker stays closed."""
    north = hang(cluster)
    (result,), _ = timed(cluster, client, Message(topic=define(cluster, "first-ever"), body=b"x"))
    assert result.code == Code.OK and cluster.home("first-ever", result.queue) != "north"
    assert north.breaker.state is State.CLOSED
    return north


def test_first_messages_go_to_other_groups_at_once(cluster):
    client = cluster.client()
    silence(cluster, client)
    for number in range(5):
        name = define(cluster, f"new-{number}")
        (result,), took_s = timed(cluster, client, Message(topic=name, body=b"x"))
        assert result.code == Code.OK and cluster.home(name, result.queue) != "north"
        assert took_s < AT_ONCE_S


def test_a_first_message_that_only_the_hanging_group_could_take_is_refused_at_once(cluster):
    client = cluster.client()
    silence(cluster, client)
    (result,), took_s = timed(cluster, client, Message(topic=topic_at(cluster, "north"), body=b"x"))
    assert result.code == Code.OVERLOADED and result.retry_after_ms > 0 and "nothing was stored" in result.error
    assert took_s < AT_ONCE_S
    name = define(cluster, "keyed")
    key = next(key for key in map(str, range(1000)) if cluster.home(name, queue_of(key.encode(), QUEUES)) == "north")
    (result,), took_s = timed(cluster, client, Message(topic=name, key=key, body=b"x"))
    assert result.code == Code.UNAVAILABLE and result.retry_after_ms > 0
    assert took_s < AT_ONCE_S


def test_the_first_of_them_is_refused_within_its_time_and_nothing_of_it_is_sent(cluster, monkeypatch):
    monkeypatch.setattr(engine_topics, "SILENT_S", 0.3)
    hang(cluster)
    name = topic_at(cluster, "north")
    (result,), took_s = timed(cluster, cluster.client(), Message(topic=name, body=b"x"))
    assert result.code == Code.OVERLOADED and took_s < 0.3 + AT_ONCE_S
    assert cluster.brokers["north"].appends == []


def test_a_message_whose_deadline_passed_while_its_topic_was_asked_for_is_not_sent(cluster):
    hang(cluster)
    (result,), _ = timed(cluster, cluster.client(), Message(topic=define(cluster, "late"), body=b"x"), timeout_ms=100)
    assert result.code == Code.OVERLOADED and result.retry_after_ms > 0
    wait_until(lambda: cluster.targets.idle)
    assert sum(len(broker.appends) for broker in cluster.brokers.values()) == 0


def test_a_claim_and_a_delayed_message_do_not_wait_for_a_silent_group(cluster):
    client = cluster.client()
    assert codes(cluster.send(client, Message(topic="once", body=b"x"))) == [Code.OK]
    silence(cluster, client)
    for number in range(12):
        sent = [
            Message(topic="once", id=f"order-{number}", key=f"key-{number}", body=b"x"),
            Message(topic="once", id=f"later-{number}", key=f"key-{number}", body=b"x", delay_ms=3_600_000),
            Message(topic="once", body=b"x", delay_ms=3_600_000),
        ]
        if cluster.home("once", queue_of(f"key-{number}".encode(), QUEUES)) == "north":
            continue  # what only that group may take waits for it, until its breaker refuses
        results, took_s = timed(cluster, client, *sent)
        assert set(codes(results)) <= {Code.OK, Code.UNAVAILABLE} and results[2].code == Code.OK
        assert took_s < AT_ONCE_S


def test_the_group_is_used_again_once_it_answers(cluster):
    client = cluster.client()
    north = silence(cluster, client)
    wake(cluster)
    wait_until(lambda: not north.is_silent)
    name = topic_at(cluster, "north", 1000)
    assert codes(cluster.send(client, Message(topic=name, body=b"x"))) == [Code.OK]
    sent = lambda: cluster.send(client, Message(topic="first-ever", body=b"x"))[0]  # noqa: E731
    wait_until(lambda: cluster.home("first-ever", sent().queue) == "north")


def test_a_first_message_with_a_key_of_a_group_whose_last_appends_were_late_is_stored_there(cluster, monkeypatch):
    client, name = cluster.client(), define(cluster, "first-keyed")
    north = next(each for each in cluster.targets.listed if each.name == "north")
    north.breaker.look(time.monotonic(), None, 0.1)
    assert (north.breaker.state, north.breaker.share, north.breaker.refusing) == (State.OPEN, 0, False)
    monkeypatch.setattr(north.breaker, "look", lambda now_s, slowest_s, owed_s: None)
    key = next(key for key in map(str, range(1000)) if cluster.home(name, queue_of(key.encode(), QUEUES)) == "north")
    assert codes(cluster.send(client, Message(topic=name, key=key, body=b"x"))) == [Code.OK]


def test_the_question_that_finds_out_is_repeated_by_one_greenlet_until_the_link_breaks(cluster):
    client = cluster.client()
    north = silence(cluster, client)
    asked = cluster.brokers["north"].questions
    for number in range(5):
        cluster.send(client, Message(topic=define(cluster, f"more-{number}"), body=b"x"))
    assert cluster.brokers["north"].questions == asked, "nobody else asks it meanwhile"
    cluster.brokers["north"].break_links()
    wait_until(lambda: not north.is_silent)
