"""send to topics whose home is Kafka: a real producer proxy, a real bridge, and a Kafka cluster in memory."""

import time

import gevent
import pytest
from gevent.pool import Pool

import producer_proxy.proxy as proxy_module
from common.clock import SystemClock
from common.config import ConfigView
from common.config.definitions import ApplicationDefinition, Grant, Key, TopicDefinition
from common.config.memory_store import MemoryConfigStore
from common.contract import Code, Durability, Message, Operation
from common.keyhash import queue_of
from common.net import listen
from common.ops.connection_pages import OpsRequest
from common.ops.send_pages import SENDS_PATH
from engine.client.brokers import Brokers
from producer_proxy.buffer.buffering import Buffering
from producer_proxy.buffer.memory_store import BufferMemoryStore
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.proxy import ProducerProxy
from producer_proxy.targets import kafka as kafka_module
from producer_proxy.targets.kafka_homes import KafkaHomes
from tests.services.bridge import ThreadedBridge
from tests.services.fake_broker import KEY, FakeBroker, wait_until
from tests.services.memory_kafka import MemoryKafka
from tests.unit.producer_proxy.send.desk import SECRET, Client, Rpc, codes, credential, request

PARTITIONS = 3
AT_HOME = {"home": "kafka:main", "id_window_ms": 0}


class KafkaDesk:
    """A proxy: `k` and `k.safe` have their home in Kafka, `orders` and `orders.safe` in the engine."""

    def __init__(self, hot: bool, monkeypatch, tmp_path, has_bridge: bool = True, journaling=None) -> None:
        if not hot:
            monkeypatch.setattr(proxy_module, "Front", None)
        self.engine, self.config = FakeBroker(), MemoryConfigStore()
        self.kafka = MemoryKafka(k=PARTITIONS, **{"k.safe": PARTITIONS})
        app = ApplicationDefinition("shop", (Key("k1", SECRET, 0),), (Grant("send", "*"),))
        self.config.put("application", "shop", app.to_value(), 0)
        self.config.put("kafka", "main", {"bootstrap": "k:9092"}, 0)
        for name, fields in {"k": AT_HOME, "k.safe": AT_HOME, "orders": {}, "orders.safe": {}}.items():
            buffer = "disk" if name.endswith("safe") else "off"
            self.config.put("topic", name, TopicDefinition(name, buffer=buffer, **fields).to_value(), 0)
        self.view = ConfigView(self.config)
        self.bridge = ThreadedBridge(tmp_path, KEY, self.config, self.kafka).start()
        brokers = Brokers(KEY, role="producer_proxy")
        brokers.use_one(self.engine.address, Rpc(self.engine))
        self.disk = BufferMemoryStore(RoomLimits(), SystemClock().now_ms)
        self.homes = KafkaHomes(self.bridge.address if has_bridge else None, KEY)
        self.proxy = ProducerProxy(
            [(listen("127.0.0.1", 0), None)], self.view, brokers, buffering=Buffering({"disk": self.disk}),
            kafka=self.homes, journaling=journaling,
        )  # fmt: skip
        wait_until(lambda: brokers.connected)
        self.client = Client(self.proxy.server.ports[0])
        self.fixed = credential()

    @property
    def target(self):
        return self.homes.of("main")

    def send(self, *messages: Message, **fields):
        return self.client.call(request(*messages, credential=self.fixed, **fields))

    def close(self) -> None:
        self.kafka.release()
        self.proxy.stop()
        self.engine.stop()
        self.bridge.kill()
        self.view.close()


@pytest.fixture(params=["hot", "slow"])
def make(request, monkeypatch, tmp_path):
    if request.param == "hot" and proxy_module.Front is None:
        pytest.skip("the hot path is not built in this run")
    made: list[KafkaDesk] = []

    def desk(**fields) -> KafkaDesk:
        made.append(KafkaDesk(request.param == "hot", monkeypatch, tmp_path, **fields))
        return made[-1]

    yield desk
    for each in made:
        each.close()


@pytest.fixture
def desk(make):
    return make()


def test_a_message_is_stored_under_the_id_and_in_the_queue_that_the_answer_names(desk):
    for number in range(20):
        (result,) = desk.send(Message(topic="k", key=f"key{number % 4}", body=b"%d" % number, tag="t"))
        assert (result.code, result.queue, result.offset) == (
            Code.OK,
            queue_of(f"key{number % 4}".encode(), PARTITIONS),
            None,
        )
        record = desk.kafka.partitions["k"][result.queue][-1]
        assert (record.key, record.value) == (f"key{number % 4}".encode(), b"%d" % number)
        assert dict(record.headers) == {"penstock-id": result.id.encode(), "penstock-tag": b"t"}


def test_a_clients_own_id_and_its_properties_are_headers(desk):
    (result,) = desk.send(Message(topic="k", id="mine", properties={"a": "ü"}))
    assert (result.code, result.id) == (Code.OK, "mine")
    assert dict(desk.kafka.records("k")[0].headers) == {"penstock-id": b"mine", "a": "ü".encode()}


def test_one_call_over_engine_and_kafka_is_answered_in_order_and_the_engines_calls_stay_hot(desk):
    for number in range(5):
        messages = [Message(topic=("k", "orders")[i % 2], id=f"m{number}-{i}", key="a") for i in range(6)]
        assert [(each.code, each.id) for each in desk.send(*messages)] == [(Code.OK, each.id) for each in messages]
        assert codes(desk.send(Message(topic="orders"))) == [Code.OK]
    assert len(desk.kafka.records("k")) == 15
    assert set(desk.engine.topics) == {"orders"}, "the engine is not asked about topics of Kafka"
    if desk.proxy.front is not None:
        assert desk.proxy.front.hot_calls == 5


def test_what_a_kafka_home_cannot_do_is_refused_by_field_topic_and_target(desk):
    on_disk = "SendRequest.durability: topic=k: its home kafka:main says nothing about disks: use MEMORY or REPLICATED"
    for message, fields, told in (
        (Message(topic="k", delay_ms=1000), {}, "Message.delay_ms: topic=k: its target kafka:main"),
        (Message(topic="k", deliver_at_ms=1), {}, "Message.deliver_at_ms: topic=k: its target kafka:main"),
        (Message(topic="k", id="a", operation=Operation.CANCEL), {}, "Message.operation: topic=k: its target kafka"),
        (Message(topic="k"), {"reply_wait_ms": 1000}, "SendRequest.reply_wait_ms: topic=k: its target kafka:main"),
        (Message(topic="k"), {"durability": Durability.FSYNC}, on_disk),
        (Message(topic="k"), {"durability": Durability.REPLICATED_FSYNC}, on_disk),
        (Message(topic="k", properties={"penstock-id": "x"}), {}, 'Message.properties: "penstock-id": names that'),
    ):
        (result,) = desk.send(message, **fields)
        assert (result.code, result.error[: len(told)]) == (Code.INVALID, told)
    assert desk.kafka.records("k") == []


@pytest.mark.parametrize("durability", [Durability.TOPIC_DEFAULT, Durability.MEMORY, Durability.REPLICATED])
def test_the_other_classes_of_durability_are_served(desk, durability):
    assert codes(desk.send(Message(topic="k"), durability=durability)) == [Code.OK]


def test_a_refusal_of_kafka_reaches_the_caller_with_its_sentence(desk):
    desk.kafka.refusal = (int(Code.TOO_LARGE), "kafka topic k: larger than max.message.bytes")
    (result,) = desk.send(Message(topic="k"))
    assert (result.code, result.error) == (Code.TOO_LARGE, "kafka topic k: larger than max.message.bytes")


def test_while_the_bridge_is_away_sends_to_kafka_are_unavailable_and_the_engines_are_not_touched(desk):
    assert codes(desk.send(Message(topic="k"))) == [Code.OK]
    desk.bridge.kill()
    wait_until(lambda: not desk.target.up)
    away, engines = desk.send(Message(topic="k"), Message(topic="orders"))
    assert (away.code, engines.code) == (Code.UNAVAILABLE, Code.OK)
    assert away.error == "the Kafka bridge cannot be reached; nothing was stored"
    assert desk.proxy.health()["kafka:main"] == away.error
    desk.bridge.start()
    wait_until(lambda: desk.target.up)
    assert codes(desk.send(Message(topic="k"))) == [Code.OK]
    assert desk.proxy.health()["kafka:main"] is True


def test_outcomes_are_counted_per_topic_on_both_paths_for_the_page_that_plans_read(desk):
    assert codes(desk.send(*[Message(topic="k")] * 3, Message(topic="k", body=b"x" * (5 << 20)))) == [Code.OK] * 3 + [
        Code.TOO_LARGE
    ]
    for number in range(4):
        desk.send(*[Message(topic=("k", "k.safe")[number % 2])] * 5)
    desk.send(Message(topic="k"), Message(topic="k.safe"), Message(topic="orders"))
    desk.bridge.kill()
    wait_until(lambda: not desk.target.up)
    assert codes(desk.send(*[Message(topic="k")] * 2, Message(topic="k.safe"))) == [Code.UNAVAILABLE] * 2 + [
        Code.BUFFERED
    ]
    _, page = desk.proxy.outcomes.pages()[SENDS_PATH](OpsRequest("GET", {}, b"", "", ""))
    assert page == {"window_s": 300, "topics": {"k": (14, 2), "k.safe": (12, 0)}}


def test_a_message_in_flight_when_the_bridge_dies_is_a_timeout_and_never_ok(desk):
    desk.kafka.is_holding = True
    sent = request(Message(topic="k", id="a"), credential=desk.fixed, timeout_ms=20_000)
    call = gevent.spawn(desk.client.call, sent)
    wait_until(lambda: desk.kafka.held == 1)
    desk.bridge.kill()
    (result,) = call.get(timeout=5)
    assert (result.code, result.error) == (Code.TIMEOUT, kafka_module.LOST)


def test_a_hanging_kafka_costs_a_caller_its_time_once_and_the_engines_callers_nothing(desk, monkeypatch):
    assert codes(desk.send(Message(topic="k"))) == [Code.OK]
    monkeypatch.setattr(kafka_module, "OVERDUE_S", 0.2)
    desk.kafka.is_holding = True
    assert codes(desk.send(Message(topic="k"), timeout_ms=100)) == [Code.TIMEOUT]
    wait_until(lambda: not desk.target.up)
    began = time.monotonic()
    hanging, engines = desk.send(Message(topic="k"), Message(topic="orders"), timeout_ms=5000)
    assert (hanging.code, engines.code) == (Code.UNAVAILABLE, Code.OK) and time.monotonic() - began < 2.5
    assert "has not answered for" in hanging.error and len(desk.kafka.records("k")) == 2
    desk.kafka.release()
    wait_until(lambda: desk.target.up)
    assert codes(desk.send(Message(topic="k"))) == [Code.OK]


def test_a_call_that_kafka_left_overdue_is_answered_once_also_when_its_own_time_is_over(desk, monkeypatch):
    """A second answer would be taken for that of the connection's next call."""
    assert codes(desk.send(Message(topic="k"))) == [Code.OK]
    monkeypatch.setattr(kafka_module, "OVERDUE_S", 0.1)
    desk.kafka.is_holding = True
    (late,) = desk.send(Message(topic="k", id="late"), timeout_ms=400)
    ends = time.monotonic() + 0.4 + 3 * kafka_module.LOOK_S
    assert (late.code, late.id) == (Code.TIMEOUT, "late") and time.monotonic() < ends - 0.3
    wait_until(lambda: time.monotonic() > ends)
    for number in range(3):
        (result,) = desk.send(Message(topic="orders", id=f"next-{number}"))
        assert (result.code, result.id) == (Code.OK, f"next-{number}")


def test_a_buffered_topic_of_kafka_is_buffered_while_the_bridge_is_away_and_then_drained(desk):
    assert codes(desk.send(Message(topic="k.safe"))) == [Code.OK]
    desk.bridge.kill()
    wait_until(lambda: not desk.target.up)
    results = [desk.send(Message(topic="k.safe", key="a", body=b"%d" % i))[0] for i in range(5)]
    assert codes(results) == [Code.BUFFERED] * 5
    assert not desk.proxy.buffer.suspects_engine
    assert codes(desk.send(Message(topic="orders.safe"))) == [Code.OK], "the engine is trusted"
    desk.bridge.start()
    wait_until(lambda: not desk.disk.room.entries)
    found = [each for each in desk.kafka.records("k.safe") if each.key == b"a"]
    assert [each.value for each in found] == [b"%d" % i for i in range(5)]
    assert [dict(each.headers)["penstock-id"] for each in found] == [each.id.encode() for each in results]


def test_entries_for_kafka_wait_in_the_buffer_without_delaying_those_for_the_engine(desk):
    assert codes(desk.send(Message(topic="k.safe"))) == [Code.OK]
    desk.bridge.kill()
    desk.engine.code = int(Code.UNAVAILABLE)
    wait_until(lambda: not desk.target.up)
    messages = [Message(topic=topic) for topic in ("k.safe", "orders.safe") for _ in range(3)]
    assert codes(desk.send(*messages)) == [Code.BUFFERED] * 6
    desk.engine.code = 0
    wait_until(lambda: desk.disk.room.entries == 3)
    assert set(desk.disk.ordering_keys.topics()) == {"k.safe"}


def test_a_suspected_engine_diverts_no_messages_of_kafka(desk):
    desk.engine.stop()
    wait_until(lambda: not desk.proxy.brokers.connected)
    assert codes(desk.send(Message(topic="orders.safe"))) == [Code.BUFFERED]
    assert desk.proxy.buffer.suspects_engine
    assert codes(desk.send(Message(topic="k.safe"))) == [Code.OK]
    assert desk.proxy.buffer.suspects_engine, "a message that Kafka took does not end it"


def test_more_than_a_cluster_may_have_unanswered_is_overloaded(desk, monkeypatch):
    monkeypatch.setattr(kafka_module, "UNANSWERED_BYTES_MAX", 100)
    assert codes(desk.send(Message(topic="k"))) == [Code.OK]
    desk.kafka.is_holding = True
    assert codes(desk.send(Message(topic="k", body=bytes(200)), timeout_ms=50)) == [Code.TIMEOUT]
    assert codes(desk.send(Message(topic="k"), Message(topic="orders"))) == [Code.OVERLOADED, Code.OK]
    desk.kafka.release()
    wait_until(lambda: desk.target.unanswered_bytes == 0)
    assert codes(desk.send(Message(topic="k"))) == [Code.OK]


def test_many_calls_of_one_turn_are_sent_together_in_order_of_each(desk):
    clients = [Client(desk.proxy.server.ports[0]) for _ in range(8)]

    def send(numbered):
        number, client = numbered
        sent = [Message(topic="k", key=f"{number}", body=b"%d" % i) for i in range(50)]
        return codes(client.call(request(*sent, credential=desk.fixed)))

    assert Pool(8).map(send, enumerate(clients)) == [[Code.OK] * 50] * 8
    for number in range(8):
        stored = [each.value for each in desk.kafka.records("k") if each.key == b"%d" % number]
        assert stored == [b"%d" % i for i in range(50)]


def test_large_calls_of_one_turn_are_sent_in_several_requests(desk):
    assert codes(desk.send(Message(topic="k"))) == [Code.OK]
    clients = [Client(desk.proxy.server.ports[0]) for _ in range(4)]
    large = request(Message(topic="k", body=bytes(3 << 20)), credential=desk.fixed, timeout_ms=20_000)
    assert Pool(4).map(lambda client: codes(client.call(large)), clients) == [[Code.OK]] * 4
    assert sorted(len(each.value) for each in desk.kafka.records("k")) == [0] + [3 << 20] * 4
    assert desk.target.idle and desk.target.unanswered_bytes == 0


def test_without_a_bridge_topics_of_kafka_are_unavailable_and_the_option_is_named(make):
    desk = make(has_bridge=False)
    (result,) = desk.send(Message(topic="k"))
    assert result.code == Code.UNAVAILABLE
    assert result.error == "this proxy has no Kafka bridge: start it with --kafka-bridge; nothing was stored"


def test_a_proxy_without_a_message_for_kafka_opens_no_link(desk):
    assert codes(desk.send(Message(topic="orders"))) == [Code.OK]
    assert desk.homes.all == [] and desk.bridge.server.links == 0


def test_a_topic_that_is_made_again_with_a_home_in_kafka_leaves_the_engine(desk):
    assert codes(desk.send(Message(topic="orders"))) == [Code.OK]
    version = desk.config.get("topic", "orders").version
    desk.kafka.create("orders", 1)
    desk.config.put("topic", "orders", TopicDefinition("orders", **AT_HOME).to_value(), version)
    wait_until(lambda: desk.view.topic("orders").kafka_cluster == "main")
    assert codes(desk.send(Message(topic="orders"))) == [Code.OK]
    assert len(desk.kafka.records("orders")) == 1


def test_calls_to_one_cluster_take_the_hot_path_and_what_it_cannot_say_the_rare_one(desk):
    def hot_calls() -> int:
        return desk.proxy.front.hot_calls if desk.proxy.front is not None else 0

    assert codes(desk.send(Message(topic="k"))) == [Code.OK]
    before = hot_calls()
    for number in range(3):
        (result,) = desk.send(Message(topic="k", key="a", body=b"%d" % number, properties={"a": "b"}))
        assert (result.code, result.queue, result.offset) == (Code.OK, queue_of(b"a", PARTITIONS), None)
    assert hot_calls() - before == (3 if desk.proxy.front is not None else 0)
    desk.kafka.refusal = (int(Code.TOO_LARGE), "kafka topic k: larger than max.message.bytes")
    found = desk.send(Message(topic="k"), Message(topic="k", id="own"))
    assert [each.error for each in found] == ["kafka topic k: larger than max.message.bytes"] * 2
    assert (found[1].id, len(found[0].id)) == ("own", 32)
    desk.kafka.refusal, before = None, hot_calls()
    for message in (Message(topic="k.safe"), Message(topic="k", properties={"penstock-x": "y"}), Message(topic="gone")):
        desk.send(message)
    assert hot_calls() == before


def test_a_topic_that_is_fenced_or_gets_another_home_leaves_the_hot_path_to_kafka(desk):
    assert codes(desk.send(Message(topic="k"))) == [Code.OK]
    version = desk.config.get("topic", "k").version
    desk.config.put("topic", "k", TopicDefinition("k").to_value(), version)
    wait_until(lambda: desk.view.topic("k").kafka_cluster is None)
    assert codes(desk.send(Message(topic="k"))) == [Code.OK]
    assert codes(desk.send(Message(topic="k"))) == [Code.OK]
    assert len(desk.kafka.records("k")) == 1 and "k" in desk.engine.topics
