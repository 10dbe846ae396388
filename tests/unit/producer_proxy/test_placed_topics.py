"""Topics that are placed on some broker groups, and a group that is spared. Hot path and reference."""

import pytest

import producer_proxy.proxy as proxy_module
from common.config.definitions import TopicDefinition
from common.contract import Code
from common.keyhash import queue_of
from common.placement import home_of_id
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.send.test_send import codes
from tests.unit.producer_proxy.test_broker_groups import NAMES, QUEUES, Cluster, message


@pytest.fixture(params=["hot", "slow"])
def cluster(request, monkeypatch):
    if request.param == "hot" and proxy_module.Front is None:
        pytest.skip("the hot path is not built in this run")
    made = Cluster(request.param == "hot", monkeypatch)
    yield made
    made.close()


def place(cluster, name: str, *groups: str) -> TopicDefinition:
    """Change the groups of a topic, as the verb does."""
    entry = cluster.store.get("topic", name)
    old = TopicDefinition.from_value(name, entry.value)
    new = TopicDefinition.from_value(name, old.complete({**entry.value, "broker_groups": list(groups)}))
    cluster.store.put("topic", name, new.to_value(), entry.version)
    wait_until(lambda: cluster.view.topic(name) == new)
    return new


def spare(cluster, name: str, writes: str) -> None:
    entry = cluster.store.get("broker_group", name)
    cluster.store.put("broker_group", name, {**entry.value, "writes": writes}, entry.version)
    broker = next(each for each in cluster.targets.listed if each.name == name)
    wait_until(lambda: broker.is_spared == (writes == "keyed"))


def send(cluster, client, count: int, topic: str) -> list:
    """A message without a key and one with, per round."""
    found = []
    for number in range(count):
        found += cluster.send(client, message(number, topic=topic), message(number, f"key-{number}", topic=topic))
    assert set(codes(found)) == {Code.OK}
    return found


def queues_of(cluster, topic: str) -> dict[str, set[int]]:
    return {name: set(found) for name in NAMES if (found := cluster.stored(name, topic))}


@pytest.mark.parametrize("topic", ["orders", "pay"])
def test_new_messages_go_to_the_groups_of_a_placed_topic_and_what_was_stored_stays(cluster, topic):
    client = cluster.client()
    send(cluster, client, 30, topic)
    before = queues_of(cluster, topic)
    assert set().union(*before.values()) <= set(range(QUEUES))
    placed = place(cluster, topic, "north")
    assert placed.first_queue == QUEUES
    results = send(cluster, client, 60, topic)
    for number, result in enumerate(results[1::2]):
        assert result.queue == QUEUES + queue_of(f"key-{number}".encode(), QUEUES)
    assert {each.queue for each in results[::2]} == set(range(QUEUES, 2 * QUEUES)), "all new queues take messages"
    after = queues_of(cluster, topic)
    assert {name: {each for each in found if each < QUEUES} for name, found in after.items()} == before
    assert set().union(*after.values()) - set(range(QUEUES)) == {each for each in after["north"] if each >= QUEUES}
    place(cluster, topic, "east", "west")
    assert min(each.queue for each in send(cluster, client, 30, topic)) >= 2 * QUEUES
    assert {each for each in queues_of(cluster, topic)["north"] if each >= 2 * QUEUES} == set()
    if cluster.proxy.front is not None:
        assert cluster.proxy.front.hot_calls > 100


def test_own_ids_of_a_placed_topic_are_stored_once_in_its_groups_alone(cluster):
    client = cluster.client()
    place(cluster, "once", "west")
    sent = [message(number, None, "once") for number in range(40)]
    for number, each in enumerate(sent):
        each.id = f"order-{number}"
    at_west = next(each.number for each in cluster.targets.listed if each.name == "west")
    own = [each for each in sent if home_of_id(each.id.encode(), cluster.targets.id_homes) == at_west]
    assert codes(cluster.send(client, *own)) == [Code.OK] * len(own)
    assert list(queues_of(cluster, "once")) == ["west"]
    assert min(queues_of(cluster, "once")["west"]) >= QUEUES


def test_a_dead_old_group_costs_a_placed_topic_nothing(cluster):
    client = cluster.client()
    place(cluster, "orders", "west")
    send(cluster, client, 1, "orders")
    cluster.brokers["north"].stop()
    cluster.brokers["east"].stop()
    wait_until(lambda: sum(each.breaker.refusing for each in cluster.targets.listed) == 2)
    cluster.proxy._known.clear()
    send(cluster, client, 50, "orders")
    assert cluster.proxy._known.get(b"orders") is not None, "it is complete without the groups that are only read"
    assert not cluster.proxy.targets.default._topics._incomplete


def test_a_spared_group_gets_only_what_has_no_other_place(cluster):
    client = cluster.client()
    send(cluster, client, 30, "orders")
    spare(cluster, "north", "keyed")
    before = sum(map(len, cluster.stored("north", "orders").values()))
    for number in range(60):
        assert codes(cluster.send(client, message(number))) == [Code.OK]
    assert sum(map(len, cluster.stored("north", "orders").values())) <= before
    assert codes(cluster.send(client, message(7, cluster.key_of("north")))) == [Code.OK]
    assert sum(map(len, cluster.stored("north", "orders").values())) == before + 1
    spare(cluster, "north", "all")
    for number in range(60):
        cluster.send(client, message(number))
    assert sum(map(len, cluster.stored("north", "orders").values())) > before + 5


def test_a_spared_group_takes_messages_where_no_other_can(cluster):
    client = cluster.client()
    place(cluster, "orders", "north")
    for name in NAMES:
        spare(cluster, name, "keyed")
    send(cluster, client, 20, "orders")
    assert list(queues_of(cluster, "orders")) == ["north"]
