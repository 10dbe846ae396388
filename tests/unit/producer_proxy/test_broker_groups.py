"""send over three broker groups: placement, and what happens when one of them dies, hangs or comes back. Hot path and reference."""

import time
from collections import Counter

import gevent
import pytest

import producer_proxy.proxy as proxy_module
from common import contract
from common.breaker import State
from common.config import ConfigView
from common.config.definitions import ApplicationDefinition, Grant, Key, TopicDefinition
from common.config.memory_store import MemoryConfigStore
from common.contract import Code, Message, Operation
from common.keyhash import queue_of
from common.net import listen
from common.placement import ID_SLOTS, IDS_HASH, Placement, queue_of_id, topic_hash
from engine.client.brokers import RESEND_S, Brokers
from engine.client.durability import LANES
from producer_proxy.proxy import ProducerProxy
from tests.services.fake_broker import KEY, FakeBroker, wait_until
from tests.unit.producer_proxy.send.desk import SECRET, Client, codes, credential, request

NAMES = ("east", "north", "west")
QUEUES = 12


class Cluster:
    """A proxy that follows a configuration of three broker groups."""

    def __init__(self, hot: bool, monkeypatch):
        if not hot:
            monkeypatch.setattr(proxy_module, "Front", None)
        self.brokers = {name: FakeBroker(name[0] * 32) for name in NAMES}
        for number, broker in enumerate(self.brokers.values()):
            broker.topics = {f"other-{each}": {"id": each + 1, "queues": 1} for each in range(5 * number)}
        self.store = MemoryConfigStore()
        app = ApplicationDefinition("shop", (Key("k1", SECRET, 0),), (Grant("send", "*"),))
        self.store.put("application", "shop", app.to_value(), 0)
        for name, durability in {"orders": "memory", "pay": "fsync"}.items():
            self.store.put("topic", name, TopicDefinition(name, QUEUES, durability).to_value(), 0)
        self.store.put("topic", "once", TopicDefinition("once", QUEUES, "memory", id_window_ms=60_000).to_value(), 0)
        for name, broker in self.brokers.items():
            self.store.put("broker_group", name, {"address": "{}:{}".format(*broker.address)}, 0)
        self.view = ConfigView(self.store)
        self.targets = Brokers(KEY, role="producer_proxy")
        self.proxy = ProducerProxy([(listen("127.0.0.1", 0), None)], self.view, self.targets)
        wait_until(self.all_closed)
        self.fixed = credential()

    def all_closed(self) -> bool:
        return len(self.targets.listed) == 3 and all(each.breaker.state is State.CLOSED for each in self.targets.listed)

    def state(self, name: str) -> State:
        return next(each.breaker.state for each in self.targets.listed if each.name == name)

    def client(self) -> Client:
        return Client(self.proxy.server.ports[0])

    def send(self, client, *messages, **fields):
        return client.call(request(*messages, credential=self.fixed, **fields))

    def home(self, topic: str, queue: int) -> str:
        return NAMES[Placement(NAMES).home(topic_hash(topic.encode()), queue)]

    def queue_of_id(self, topic: str, shown: bytes) -> int:
        placement = Placement(NAMES)
        return queue_of_id(
            shown, placement.homes(topic_hash(topic.encode()), QUEUES), placement.homes(IDS_HASH, ID_SLOTS)
        )

    def key_of(self, name: str) -> str:
        """A key whose queue lives in this group."""
        return next(key for key in map(str, range(1000)) if self.home("orders", queue_of(key.encode(), QUEUES)) == name)

    def queues_of(self, name: str) -> list[int]:
        return [queue for queue in range(QUEUES) if self.home("orders", queue) == name]

    def stored(self, name: str, topic: str) -> dict[int, list]:
        """What a broker has of a topic, by queue."""
        broker = self.brokers[name]
        wanted = broker.topics.get(topic, {"id": None})["id"]
        return {queue: run for (topic_id, queue), run in broker.stored.items() if topic_id == wanted}

    def bodies(self, topic: str) -> Counter:
        """How often each body is stored, anywhere."""
        runs = [run for name in NAMES for run in self.stored(name, topic).values()]
        return Counter(encoded[-7:-1] for run in runs for _, encoded in run)

    def close(self):
        for broker in self.brokers.values():
            broker.go.set()
        self.proxy.stop()
        for broker in self.brokers.values():
            broker.stop()
        self.view.close()


@pytest.fixture(params=["hot", "slow"])
def cluster(request, monkeypatch):
    if request.param == "hot" and proxy_module.Front is None:
        pytest.skip("the hot path is not built in this run")
    made = Cluster(request.param == "hot", monkeypatch)
    yield made
    made.close()


def message(number: int, key: str | None = None, topic: str = "orders") -> Message:
    return Message(topic=topic, body=b"%06d" % number, key=key)


def test_every_queue_lives_in_the_group_that_its_name_chooses_and_nowhere_else(cluster):
    client = cluster.client()
    for number in range(200):
        results = cluster.send(client, message(number), message(number, f"key-{number}"), message(number, topic="pay"))
        assert codes(results) == [Code.OK] * 3
        assert results[1].queue == queue_of(f"key-{number}".encode(), QUEUES)
    for topic in ("orders", "pay"):
        for name in NAMES:
            assert set(cluster.stored(name, topic)) == {
                queue for queue in range(QUEUES) if cluster.home(topic, queue) == name
            }
    if cluster.proxy.front is not None:
        assert cluster.proxy.front.hot_calls == 0, "each call is of two classes of durability"


def test_one_call_over_all_groups_is_answered_in_order_with_each_messages_own_place(cluster):
    client = cluster.client()
    for a_round in range(3):
        messages = [message(1000 * a_round + number, f"key-{number}") for number in range(100)]
        results = cluster.send(client, *messages)
        assert codes(results) == [Code.OK] * 100
        for sent, result in zip(messages, results, strict=True):
            run = cluster.stored(cluster.home("orders", result.queue), "orders")[result.queue]
            assert sent.body in run[result.offset][1]
    if cluster.proxy.front is not None:
        assert cluster.proxy.front.hot_calls == 2, "the first call made the topic known"


@pytest.mark.parametrize("death", ["stop", "reset"])
def test_when_a_broker_dies_unordered_messages_go_on_and_its_keys_are_refused_at_once(cluster, death):
    client = cluster.client()
    assert codes(cluster.send(client, message(0))) == [Code.OK]
    lost, kept = cluster.key_of("north"), cluster.key_of("west")
    cluster.brokers["north"].stop()
    wait_until(lambda: cluster.state("north") is State.OPEN)
    for number in range(1, 100):
        results = cluster.send(client, message(number), message(number, lost), message(number, kept))
        assert codes(results) == [Code.OK, Code.UNAVAILABLE, Code.OK]
        assert results[1].retry_after_ms > 0
        assert cluster.home("orders", results[0].queue) != "north"


def test_messages_on_their_way_to_a_broker_that_dies_are_stored_elsewhere_and_keys_learn_that_nobody_knows(cluster):
    client, other = cluster.client(), cluster.client()
    assert codes(cluster.send(client, message(0))) == [Code.OK]
    cluster.brokers["north"].go.clear()
    sent = [gevent.spawn(cluster.send, cluster.client(), message(number)) for number in range(1, 40)]
    keyed = gevent.spawn(cluster.send, other, message(99, cluster.key_of("north")))
    wait_until(lambda: cluster.brokers["north"].appends)
    cluster.brokers["north"].break_links()
    gevent.joinall([*sent, keyed], timeout=3)
    assert {codes(each.value)[0] for each in sent} == {Code.OK}
    assert codes(keyed.value)[0] in (Code.TIMEOUT, Code.UNAVAILABLE)
    assert all(cluster.home("orders", each.value[0].queue) != "north" for each in sent[5:])
    for number in range(1, 40):
        assert cluster.bodies("orders")[b"%06d" % number] == 1


def test_a_broker_that_hangs_is_isolated_at_once_and_no_unordered_message_waits_for_it_long(cluster):
    client = cluster.client()
    assert codes(cluster.send(client, message(0))) == [Code.OK]
    cluster.brokers["north"].go.clear()
    began = time.monotonic()
    keyed = gevent.spawn(cluster.send, cluster.client(), message(0, cluster.key_of("north")))
    wait_until(lambda: cluster.state("north") is State.OPEN)
    isolated_s = time.monotonic() - began
    assert isolated_s < 0.25, "30 ms until it is late and 5 ms until somebody looks; the rest is this machine"
    for number in range(1, 60):
        began = time.monotonic()
        (result,) = cluster.send(client, message(number))
        assert result.code == Code.OK and cluster.home("orders", result.queue) != "north"
        assert time.monotonic() - began < 0.5
    cluster.brokers["north"].go.set()
    assert codes(keyed.get(timeout=3)) == [Code.OK], "it waited, for a hiccup is no reason to refuse it"


def test_a_pause_of_the_proxy_itself_isolates_no_broker(cluster):
    client = cluster.client()
    assert codes(cluster.send(client, message(0))) == [Code.OK]
    for broker in cluster.brokers.values():
        broker.go.clear()
    sent = [gevent.spawn(cluster.send, cluster.client(), message(1, cluster.key_of(name))) for name in NAMES]
    wait_until(lambda: all(broker.appends for broker in cluster.brokers.values()))
    for broker in cluster.brokers.values():
        broker.go.set()
    time.sleep(0.5)  # no greenlet runs meanwhile
    gevent.joinall(sent, timeout=3)
    assert [codes(each.value) for each in sent] == [[Code.OK]] * 3
    wait_until(cluster.all_closed)
    assert [each.breaker.opened for each in cluster.targets.listed] == [0] * 3


def test_what_was_sent_to_a_broker_that_hangs_goes_elsewhere_before_its_callers_give_up(cluster):
    client = cluster.client()
    assert codes(cluster.send(client, message(0))) == [Code.OK]
    cluster.brokers["north"].go.clear()
    began = time.monotonic()
    for number in range(1, 30):
        assert codes(cluster.send(client, message(number))) == [Code.OK]
    assert RESEND_S < time.monotonic() - began < 1.5, "exactly one of them was caught"
    cluster.brokers["north"].go.set()
    wait_until(lambda: cluster.targets.idle)
    assert cluster.bodies("orders").total() == 31, "the caught one was stored at both in the end, under one id"


def test_after_a_long_silence_keys_of_that_broker_are_refused_at_once(cluster):
    client = cluster.client()
    assert codes(cluster.send(client, message(0))) == [Code.OK]
    cluster.brokers["north"].go.clear()
    lost = cluster.key_of("north")
    first = codes(cluster.send(cluster.client(), message(1, lost), timeout_ms=1100))
    assert first in ([Code.TIMEOUT], [Code.UNAVAILABLE])  # the silence may have begun long before, on a busy machine
    wait_until(lambda: any(each.breaker.opened for each in cluster.targets.listed))

    def is_refused_at_once():
        began = time.monotonic()
        refused = codes(cluster.send(client, message(2, lost), timeout_ms=300)) == [Code.UNAVAILABLE]
        return refused and time.monotonic() - began < 0.2

    wait_until(is_refused_at_once)  # on a busy machine the first one may be the one that tries the broker again


def test_a_broker_that_comes_back_is_let_in_again_and_holds_its_queues(cluster):
    client = cluster.client()
    assert codes(cluster.send(client, message(0))) == [Code.OK]
    cluster.brokers["north"].break_links()
    wait_until(lambda: cluster.brokers["north"].greeted["n" * 32] == 2 * (len(LANES) + 1))  # its links, twice
    wait_until(cluster.all_closed)
    seen = {cluster.send(client, message(number))[0].queue for number in range(1, 60)}
    assert seen == set(range(QUEUES))


def test_a_topic_met_while_a_group_is_away_uses_the_others_and_that_one_when_it_is_back(cluster):
    cluster.brokers["north"].go.clear()
    cluster.brokers["north"].break_links()
    cluster.brokers["north"]._server.stop_accepting()
    wait_until(lambda: cluster.state("north") is State.OPEN)
    client = cluster.client()
    seen = {cluster.send(client, message(number))[0].queue for number in range(40)}
    assert seen == set(range(QUEUES)) - set(cluster.queues_of("north"))
    cluster.brokers["north"].go.set()
    cluster.brokers["north"]._server.start_accepting()
    wait_until(cluster.all_closed)
    wait_until(lambda: cluster.send(client, message(1))[0].queue in cluster.queues_of("north"))


def test_with_all_groups_away_every_message_is_refused_as_unavailable(cluster):
    client = cluster.client()
    assert codes(cluster.send(client, message(0))) == [Code.OK]
    for broker in cluster.brokers.values():
        broker.stop()
    wait_until(lambda: all(cluster.state(name) is State.OPEN for name in NAMES))
    assert codes(cluster.send(client, message(1), message(2, "key"))) == [Code.UNAVAILABLE] * 2


def test_another_log_at_one_group_makes_ids_be_asked_anew(cluster):
    client = cluster.client()
    assert codes(cluster.send(client, message(0))) == [Code.OK]
    north = cluster.brokers["north"]
    north.log_id, north.topics, north.stored = "x" * 32, {"something": {"id": 1, "queues": 9}}, {}
    north.break_links()
    wait_until(lambda: north.greeted["x" * 32] >= 3 and cluster.all_closed())
    for number in range(60):
        assert codes(cluster.send(client, message(number))) == [Code.OK]
    assert set(cluster.stored("north", "orders")) == set(cluster.queues_of("north"))
    assert {topic_id for topic_id, _ in north.stored} == {north.topics["orders"]["id"]}


def test_a_group_that_moves_to_another_address_is_followed(cluster):
    client = cluster.client()
    assert codes(cluster.send(client, message(0))) == [Code.OK]
    old, new = cluster.brokers["north"], FakeBroker("n" * 32)
    cluster.brokers["north"] = new
    found = cluster.store.get("broker_group", "north")
    cluster.store.put("broker_group", "north", {"address": "{}:{}".format(*new.address)}, found.version)
    wait_until(cluster.all_closed)
    for number in range(40):
        assert codes(cluster.send(client, message(number))) == [Code.OK]
    assert set(cluster.stored("north", "orders")) == set(cluster.queues_of("north"))
    old.stop()


def test_without_any_group_a_send_says_that_the_configuration_names_none(cluster):
    client = cluster.client()
    for name in NAMES:
        cluster.store.delete("broker_group", name, cluster.store.get("broker_group", name).version)
    (result,) = cluster.send(client, message(0))
    assert result.code == Code.UNAVAILABLE and "no broker group" in result.error
    assert cluster.proxy.health()["engine"] == "the configuration names no broker group"


def test_an_own_id_leads_to_the_same_queue_each_time_where_ids_are_checked(cluster):
    client = cluster.client()
    for number in range(30):
        twice = [cluster.send(client, Message(topic="once", id=f"order-{number}"))[0] for _ in range(2)]
        assert codes(twice) == [Code.OK] * 2 and twice[0].queue == twice[1].queue
    for name in NAMES:
        ids = {cluster.brokers[name].topics["once"]["id"]}
        assert {(topic_id, window) for topic_id, _, window in cluster.brokers[name].checked} == {(*ids, 60_000)}


def groups_of_ids(cluster) -> dict[str, str]:
    """Id -> the broker groups that have stored it, joined."""
    found: dict[str, str] = {}
    for name in NAMES:
        topic_id = cluster.brokers[name].topics["once"]["id"]
        for (each, _), run in cluster.brokers[name].stored.items():
            for _, encoded in run if each == topic_id else ():
                shown = contract.decode_struct(Message, encoded).id
                found[shown] = found.get(shown, "") + name
    return found


def test_an_own_id_leads_to_the_same_group_when_its_topic_gets_more_queues(cluster):
    client = cluster.client()
    sends = [Message(topic="once", id=f"order-{number}", delay_ms=None) for number in range(60)]
    for each in sends:
        assert codes(cluster.send(client, each)) == [Code.OK]
    first = groups_of_ids(cluster)
    found = cluster.store.get("topic", "once")
    more = TopicDefinition("once", 2 * QUEUES + 1, "memory", id_window_ms=60_000)
    cluster.store.put("topic", "once", more.to_value(), found.version)
    assert set(first.values()) == set(NAMES), "ids are spread over all groups"
    for each in sends:
        assert codes(cluster.send(client, each)) == [Code.OK]
    assert groups_of_ids(cluster) == {shown: 2 * name for shown, name in first.items()}


def test_a_copy_that_could_not_be_told_from_the_first_one_is_not_stored_in_another_group(cluster):
    client = cluster.client()
    numbers = range(200)
    chosen = next(n for n in numbers if cluster.home("once", cluster.queue_of_id("once", b"order-%d" % n)) == "north")
    assert codes(cluster.send(client, Message(topic="once", id="first"), Message(topic="once"))) == [Code.OK] * 2
    cluster.brokers["north"].stop()
    wait_until(lambda: cluster.state("north") is State.OPEN)
    results = cluster.send(client, Message(topic="once", id=f"order-{chosen}"), Message(topic="once"))
    assert codes(results) == [Code.UNAVAILABLE, Code.OK], "what has no id of its own goes elsewhere"


def test_delayed_messages_wait_at_the_home_of_their_queue_and_are_found_there_by_a_cancellation(cluster):
    client = cluster.client()
    later = [
        Message(topic="orders", id=f"later-{n}", key=f"key-{n}" if n % 2 else None, delay_ms=5000) for n in range(40)
    ]
    results = cluster.send(client, *later)
    assert codes(results) == [Code.OK] * 40
    for name, broker in cluster.brokers.items():
        assert broker.timers and {timer.queue for timer in broker.timers} <= set(cluster.queues_of(name))
    withdrawals = [Message(topic="orders", id=each.id, operation=Operation.CANCEL) for each in later]
    assert codes(cluster.send(client, *withdrawals)) == [Code.OK] * 40
    assert not any(broker.timers for broker in cluster.brokers.values())
    assert codes(cluster.send(client, withdrawals[0])) == [Code.NOT_CANCELLABLE]


def test_a_message_is_only_said_not_to_be_cancellable_when_every_group_has_said_so(cluster):
    client = cluster.client()
    assert codes(cluster.send(client, message(0))) == [Code.OK]
    cluster.brokers["north"].stop()
    wait_until(lambda: cluster.state("north") is State.OPEN)
    (result,) = cluster.send(client, Message(topic="orders", id="later", operation=Operation.CANCEL))
    assert result.code == Code.UNAVAILABLE


def test_a_group_with_enough_waiting_refuses_its_keys_as_overload_and_others_take_the_rest(cluster):
    client, lost = cluster.client(), cluster.key_of("north")
    assert codes(cluster.send(client, message(0))) == [Code.OK]
    cluster.store.put("setting", "gate", {"queue_ms": 20}, 0)
    wait_until(lambda: {limit.queue_s for limit in cluster.targets.queue_limits} == {0.02})
    cluster.brokers["north"].go.clear()
    first = gevent.spawn(cluster.send, cluster.client(), message(1, lost))
    wait_until(lambda: any(limit.is_stalled for limit in cluster.targets.queue_limits))
    (refused,) = cluster.send(client, message(2, lost))
    assert refused.code == Code.OVERLOADED
    results = cluster.send(client, message(3), message(4, cluster.key_of("west")), message(5, lost))
    assert codes(results) == [Code.OK, Code.OK, Code.OVERLOADED]
    cluster.brokers["north"].go.set()
    assert codes(first.get(timeout=3)) == [Code.OK]
    wait_until(lambda: codes(cluster.send(client, message(6, lost))) == [Code.OK])
