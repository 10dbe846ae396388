"""send through a real producer proxy whose topics have a target in memory: beside the engine, and without any engine."""

import pytest

import producer_proxy.proxy as proxy_module
from common.clock import SystemClock
from common.config import ConfigView
from common.config.definitions import ApplicationDefinition, Grant, Key, TopicDefinition
from common.config.memory_store import MemoryConfigStore
from common.contract import Code, Message, Operation
from common.keyhash import queue_of
from common.net import listen
from engine.client.brokers import Brokers
from producer_proxy.buffer.buffering import Buffering
from producer_proxy.buffer.memory_store import BufferMemoryStore
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.proxy import ProducerProxy
from producer_proxy.targets.memory import MemoryTarget
from tests.services.fake_broker import KEY, FakeBroker, wait_until
from tests.unit.producer_proxy.send.desk import SECRET, Client, Rpc, codes, credential, request

QUEUES = 4


class Kept:
    """A broker in memory: records by topic and queue."""

    def __init__(self) -> None:
        self.topics: dict[str, list[list[bytes]]] = {}

    def create_topic(self, name: str, queues: int) -> None:
        assert name not in self.topics
        self.topics[name] = [[] for _ in range(queues)]

    def queues(self, name: str) -> int | None:
        return len(self.topics[name]) if name in self.topics else None

    def append(self, topic: str, queue: int, records, stored_at_ms: int) -> int:
        assert stored_at_ms > 1_700_000_000_000
        run = self.topics[topic][queue]
        run += records
        return len(run) - len(records)


class Desk:
    """A proxy: `mem` and `mem.safe` are kept in memory, `orders` by the engine, if there is one."""

    def __init__(self, hot: bool, with_engine: bool, monkeypatch) -> None:
        if not hot:
            monkeypatch.setattr(proxy_module, "Front", None)
        self.engine = FakeBroker() if with_engine else None
        config = MemoryConfigStore()
        app = ApplicationDefinition("shop", (Key("k1", SECRET, 0),), (Grant("send", "*"),))
        config.put("application", "shop", app.to_value(), 0)
        for name, buffer in {"mem": "off", "mem.safe": "disk", "orders": "off"}.items():
            config.put("topic", name, TopicDefinition(name, queues=QUEUES, buffer=buffer).to_value(), 0)
        self.view, self.kept = ConfigView(config), Kept()
        brokers = Brokers(KEY, role="producer_proxy")
        if self.engine is not None:
            brokers.use_one(self.engine.address, Rpc(self.engine))
        now_ms = SystemClock().now_ms
        self.disk = BufferMemoryStore(RoomLimits(), now_ms)
        target = MemoryTarget(self.kept, now_ms)
        self.proxy = ProducerProxy(
            [(listen("127.0.0.1", 0), None)], self.view, brokers, buffering=Buffering({"disk": self.disk}),
            targets={"mem": target, "mem.safe": target},
        )  # fmt: skip
        if self.engine is not None:
            wait_until(lambda: brokers.connected)
        self.client = Client(self.proxy.server.ports[0])
        self.fixed = credential()

    def send(self, *messages: Message, **fields):
        return self.client.call(request(*messages, credential=self.fixed, **fields))

    def close(self) -> None:
        self.proxy.stop()
        if self.engine is not None:
            self.engine.stop()
        self.view.close()


@pytest.fixture(params=["hot", "slow"])
def make(request, monkeypatch):
    if request.param == "hot" and proxy_module.Front is None:
        pytest.skip("the hot path is not built in this run")
    made: list[Desk] = []

    def desk(with_engine: bool) -> Desk:
        made.append(Desk(request.param == "hot", with_engine, monkeypatch))
        return made[-1]

    yield desk
    for each in made:
        each.close()


def test_without_any_engine_messages_are_stored_as_records_under_the_id_that_the_answer_names(make):
    desk = make(with_engine=False)
    for number in range(3):
        (assigned, own) = desk.send(Message(topic="mem", key="k", body=b"%d" % number), Message(topic="mem", id="mine"))
        assert (assigned.code, assigned.queue, assigned.offset) == (Code.OK, queue_of(b"k", QUEUES), number)
        record = desk.kept.topics["mem"][assigned.queue][assigned.offset]
        assert int.from_bytes(record[:4], "little") == len(record) - 4 and record[4] == 1
        assert record[5:21].hex() == assigned.id and b"%d" % number in record
        record = desk.kept.topics["mem"][own.queue][own.offset]
        assert (own.code, own.id, record[4]) == (Code.OK, "mine", 0)
    (refused,) = desk.send(Message(topic="orders"))
    assert refused.code == Code.UNAVAILABLE


def test_messages_without_a_key_take_all_queues_in_turn(make):
    desk = make(with_engine=False)
    seen = {result.queue for _ in range(QUEUES) for result in desk.send(*[Message(topic="mem")] * 3)}
    assert seen == set(range(QUEUES))


def test_one_call_over_the_engine_and_memory_is_answered_in_order_and_the_engines_calls_stay_hot(make):
    desk = make(with_engine=True)
    for number in range(5):
        messages = [Message(topic=("mem", "orders")[i % 2], id=f"m{number}-{i}", key="k") for i in range(6)]
        results = desk.send(*messages)
        assert [(each.code, each.id) for each in results] == [(Code.OK, each.id) for each in messages]
        assert codes(desk.send(Message(topic="orders"))) == [Code.OK]
    assert len(desk.kept.topics["mem"][queue_of(b"k", QUEUES)]) == 15
    assert set(desk.engine.topics) == {"orders"}, "the engine is not asked about topics of others"
    if desk.proxy.front is not None:
        assert desk.proxy.front.hot_calls == 5


def test_what_the_target_does_not_support_is_refused_by_field_topic_and_target(make):
    desk = make(with_engine=True)
    for message, fields, field in (
        (Message(topic="mem", delay_ms=1000), {}, "Message.delay_ms"),
        (Message(topic="mem", deliver_at_ms=1), {}, "Message.deliver_at_ms"),
        (Message(topic="mem", id="a", operation=Operation.CANCEL), {}, "Message.operation"),
        (Message(topic="mem"), {"reply_wait_ms": 1000}, "SendRequest.reply_wait_ms"),
    ):
        (result,) = desk.send(message, **fields)
        assert result.code == Code.INVALID
        assert result.error.startswith(f"{field}: topic=mem: its target memory ")
    assert desk.kept.topics == {}


def test_a_dead_engine_neither_diverts_nor_delays_messages_of_the_memory_target(make):
    desk = make(with_engine=True)
    desk.engine.stop()
    wait_until(lambda: not desk.proxy.brokers.connected)
    assert codes(desk.send(Message(topic="mem.safe"), Message(topic="orders"))) == [Code.OK, Code.UNAVAILABLE]
    assert desk.disk.room.entries == 0


def test_health_names_each_target(make):
    health = make(with_engine=False).proxy.health()
    assert health == {
        "engine": "the configuration names no broker group", "memory": True, "serving": True, "buffer disk": True,
        "configuration": True, "credentials": True, "connections": True,
    }  # fmt: skip
