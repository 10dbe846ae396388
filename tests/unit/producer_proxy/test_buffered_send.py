"""send to topics with a fallback buffer while the broker is away, hangs or refuses; both paths, a broker and a store in memory."""

import gevent
import pytest
from prometheus_client import CollectorRegistry, generate_latest

import producer_proxy.buffer.redrive as redrive_module
import producer_proxy.proxy as proxy_module
from common.clock import SystemClock
from common.config import ConfigView
from common.config.definitions import ApplicationDefinition, Grant, Key, TopicDefinition
from common.config.memory_store import MemoryConfigStore as MemoryConfig
from common.contract import Code, Message, encode_call
from common.net import listen
from common.readiness import Note
from common.wire import walk_send
from engine.client.brokers import Brokers
from producer_proxy.buffer.buffering import Buffering
from producer_proxy.buffer.disk import dead
from producer_proxy.buffer.drain import Drainer
from producer_proxy.buffer.entry import BufferEntry
from producer_proxy.buffer.errors import BufferFull
from producer_proxy.buffer.memory_store import BufferMemoryStore
from producer_proxy.buffer.metrics import BufferMetrics
from producer_proxy.buffer.redrive import DeadFile
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.proxy import ProducerProxy
from producer_proxy.send.results import BUFFER_FULL
from tests.services.fake_broker import KEY, FakeBroker, wait_until
from tests.unit.producer_proxy.send.desk import SECRET, Client, Rpc, credential, request

TOPICS = {"safe": "disk", "both": "redis+disk", "plain": "off"}


class Desk:
    """A proxy with a buffer, its broker and its configuration."""

    def __init__(self, hot: bool, monkeypatch):
        if not hot:
            monkeypatch.setattr(proxy_module, "Front", None)
        self.broker = FakeBroker()
        config = MemoryConfig()
        app = ApplicationDefinition("shop", (Key("k1", SECRET, 0),), (Grant("send", "*"),))
        config.put("application", "shop", app.to_value(), 0)
        for name, buffer in TOPICS.items():
            config.put("topic", name, TopicDefinition(name, queues=4, buffer=buffer).to_value(), 0)
        self.config, self.view = config, ConfigView(config)
        now_ms = SystemClock().now_ms
        self.redis, self.disk = (BufferMemoryStore(RoomLimits(), now_ms) for _ in range(2))
        self.redis.name, self.disk.name = "redis", "disk"
        brokers = Brokers(KEY, role="producer_proxy")
        brokers.use_one(self.broker.address, Rpc(self.broker))
        self.proxy = ProducerProxy(
            [(listen("127.0.0.1", 0), None)], self.view, brokers,
            buffering=Buffering({"redis": self.redis, "disk": self.disk}),
        )  # fmt: skip
        wait_until(lambda: self.proxy.brokers.connected)
        self.client = Client(self.proxy.server.ports[0])
        self.fixed = credential()

    def send(self, *messages, client=None, **fields):
        return (client or self.client).call(request(*messages, credential=self.fixed, **fields))

    def codes(self, *messages, **fields):
        return [result.code for result in self.send(*messages, **fields)]

    def another_client(self):
        return Client(self.proxy.server.ports[0])

    def stored(self, topic: str) -> list[bytes]:
        """Bodies in the broker, queue by queue."""
        topic_id = self.broker.topics[topic]["id"]
        return [
            contract_body(encoded)
            for (owner, _), run in sorted(self.broker.stored.items())
            if owner == topic_id
            for _, encoded in run
        ]

    def ids(self, topic: str) -> list[str]:
        topic_id = self.broker.topics[topic]["id"]
        return [
            id16.hex()
            for (owner, _), run in sorted(self.broker.stored.items())
            if owner == topic_id
            for id16, _ in run
            if id16
        ]

    def wait_drained(self):
        wait_until(lambda: self.redis.room.entries + self.disk.room.entries == 0, 5)

    def close(self):
        self.proxy.stop()
        self.broker.stop()
        self.view.close()


def encoded(**fields) -> bytes:
    """The bytes of a Message as a proxy receives it."""
    frame = encode_call("send", 1, request(Message(**fields), credential=credential()))
    return walk_send(frame, messages_max=10, body_bytes_max=1 << 20).messages[0].encoded


def contract_body(encoded: bytes) -> bytes:
    """Field 2 of a Message that begins with its topic."""
    size = int.from_bytes(encoded[3:7], "big")
    at = 7 + size
    assert encoded[at : at + 3] == b"\x0b\x00\x02"
    length = int.from_bytes(encoded[at + 3 : at + 7], "big")
    return encoded[at + 7 : at + 7 + length]


@pytest.fixture(params=["hot", "slow"])
def desk(request, monkeypatch):
    if request.param == "hot" and proxy_module.Front is None:
        pytest.skip("the hot path is not built in this run")
    made = Desk(request.param == "hot", monkeypatch)
    assert made.codes(Message(topic="safe", body=b"w"), Message(topic="plain", body=b"w")) == [Code.OK, Code.OK]
    yield made
    made.close()


def message(body: bytes, topic="safe", key="k", **fields) -> Message:
    return Message(topic=topic, body=body, key=key, **fields)


def test_while_the_broker_hangs_a_send_is_buffered_within_its_deadline_under_the_id_that_the_broker_will_see(desk):
    desk.broker.go.clear()
    (result,) = desk.send(message(b"1"), timeout_ms=700)
    assert (result.code, result.queue, result.offset, result.error) == (Code.BUFFERED, None, None, None)
    assert desk.disk.room.entries == 1
    desk.broker.go.set()
    desk.wait_drained()
    assert desk.ids("safe").count(result.id) == 2  # the broker had it already: a copy under the same id
    assert desk.stored("plain") == [b"w"]


def test_without_a_buffer_a_topic_is_answered_as_ever(desk):
    desk.broker.go.clear()
    assert desk.codes(message(b"1", "plain"), timeout_ms=100) == [Code.TIMEOUT]
    assert desk.codes(message(b"1", "plain"), message(b"2"), timeout_ms=100) == [Code.TIMEOUT, Code.BUFFERED]
    desk.broker.go.set()


def test_a_lost_link_buffers_what_was_sent_and_what_comes_after_it(desk):
    desk.broker.go.clear()
    waiting = gevent.spawn(desk.codes, message(b"1"), message(b"2", "plain"))
    wait_until(lambda: len(desk.broker.appends) == 2)
    desk.broker.stop()
    assert waiting.get(timeout=3) == [Code.BUFFERED, Code.TIMEOUT]
    assert desk.codes(message(b"3"), message(b"4", key=None)) == [Code.BUFFERED, Code.BUFFERED]
    assert desk.codes(message(b"5", "plain")) == [Code.UNAVAILABLE]


def test_a_topic_that_nobody_has_sent_to_yet_is_buffered_too(desk):
    desk.broker.stop()
    wait_until(lambda: not desk.proxy.brokers.connected)
    (result,) = desk.send(message(b"1", "both", id="mine"))
    assert (result.code, result.id) == (Code.BUFFERED, "mine")


def test_a_diverted_key_stays_behind_its_backlog_while_others_go_to_the_broker(desk):
    desk.broker.batch_code = Code.UNAVAILABLE
    assert desk.codes(message(b"1", key="a")) == [Code.BUFFERED]
    desk.broker.batch_code = 0
    with stalled(desk):
        assert desk.codes(message(b"2", key="a"), message(b"3", key="b")) == [Code.BUFFERED, Code.OK]
        assert desk.codes(message(b"4", key="a")) == [Code.BUFFERED]
        assert [body for body in desk.stored("safe") if body in (b"1", b"2", b"3", b"4")] == [b"3"]
    desk.wait_drained()
    assert [body for body in desk.stored("safe") if body in (b"1", b"2", b"4")] == [b"1", b"2", b"4"]
    assert desk.codes(message(b"5", key="a")) == [Code.OK]


class stalled:
    """The drainers find no topics."""

    def __init__(self, desk):
        self._drainers = desk.proxy.buffering.drainers.values()

    def __enter__(self):
        for drainer in self._drainers:
            drainer._wait_for = lambda: set(TOPICS)

    def __exit__(self, *_):
        for drainer in self._drainers:
            drainer._wait_for = set


def test_order_of_a_key_holds_across_many_outages(desk):
    told: list[tuple[int, int]] = []

    def producer():
        client = desk.another_client()
        for number in range(600):
            (result,) = desk.send(message(b"%d" % number), client=client)
            told.append((number, result.code))

    sending = gevent.spawn(producer)
    for outage in range(6):
        wait_until(lambda goal=outage * 90: len(told) > goal, 10)
        if outage % 2:
            desk.broker.break_links()
        else:
            desk.broker.batch_code = Code.UNAVAILABLE
            gevent.sleep(0.03)
            desk.broker.batch_code = 0
    sending.join(20)
    desk.wait_drained()
    assert {code for _, code in told} == {Code.OK, Code.BUFFERED}
    bodies = [int(body) for body in desk.stored("safe") if body != b"w"]
    first_seen = list(dict.fromkeys(bodies))
    assert first_seen == list(range(600))


def test_a_hasty_client_is_buffered_without_throwing_suspicion_on_the_engine(desk):
    desk.broker.go.clear()
    assert desk.codes(message(b"1"), timeout_ms=60) == [Code.BUFFERED]
    assert not desk.proxy.buffer.suspects_engine
    assert desk.codes(message(b"2", key="other"), timeout_ms=800) == [Code.BUFFERED]
    assert desk.proxy.buffer.suspects_engine
    desk.broker.go.set()
    desk.wait_drained()
    assert not desk.proxy.buffer.suspects_engine
    assert desk.codes(message(b"3", key="other")) == [Code.OK]


def test_a_suspected_engine_is_not_waited_for_again(desk):
    desk.broker.go.clear()
    assert desk.codes(message(b"0"), timeout_ms=800) == [Code.BUFFERED]
    with gevent.Timeout(2):
        for number in range(30):
            assert desk.codes(message(b"1", key=f"k{number}")) == [Code.BUFFERED]
    desk.broker.go.set()
    desk.wait_drained()


def test_one_topic_that_the_broker_refuses_does_not_hold_up_the_drain_of_another(desk):
    desk.codes(message(b"w", "both"))
    desk.config.put("topic", "both", TopicDefinition("both", queues=4, buffer="disk").to_value(), 1)
    desk.broker.refused_topics = {desk.broker.topics["safe"]["id"], desk.broker.topics["both"]["id"]}
    wait_until(lambda: desk.codes(message(b"1"), message(b"2", "both")) == [Code.BUFFERED] * 2)
    desk.broker.refused_topics.discard(desk.broker.topics["both"]["id"])
    wait_until(lambda: not desk.proxy.buffer.has_backlog("both"))
    assert desk.proxy.buffer.has_backlog("safe") and not desk.proxy.buffer.suspects_engine
    assert desk.codes(message(b"3", "both"), message(b"4")) == [Code.OK, Code.BUFFERED]
    desk.broker.refused_topics.clear()
    desk.wait_drained()


def test_what_the_broker_will_never_take_goes_to_the_dead_letter_list(desk):
    desk.broker.batch_code = Code.UNAVAILABLE
    assert desk.codes(message(b"1")) == [Code.BUFFERED]
    desk.broker.batch_code = Code.TOO_LARGE
    wait_until(lambda: desk.disk.dead)
    assert desk.disk.dead[0][0] == "the engine refused it with code 101"
    desk.wait_drained()
    desk.broker.batch_code = 0
    assert desk.codes(message(b"2")) == [Code.OK]


def test_a_topic_that_was_deleted_meanwhile_goes_to_the_dead_letter_list(desk):
    desk.broker.batch_code = Code.UNAVAILABLE
    assert desk.codes(message(b"1")) == [Code.BUFFERED]
    desk.config.delete("topic", "safe", 1)
    wait_until(lambda: desk.disk.dead)
    assert desk.disk.dead[0][0] == "the topic was deleted"


def test_messages_of_a_topic_whose_definition_is_missing_are_kept_until_it_is_there_again(desk):
    now_ms = SystemClock().now_ms()
    desk.disk.put([BufferEntry("lost", None, bytes(16), encoded(topic="lost", body=b"1"), now_ms)])
    desk.disk.put([BufferEntry("safe", b"k", bytes(15) + b"1", encoded(topic="safe", body=b"2", key="k"), now_ms)])
    wait_until(lambda: desk.disk.room.entries == 1)
    assert desk.disk.dead == []
    desk.config.put("topic", "lost", TopicDefinition("lost", queues=1).to_value(), 0)
    wait_until(lambda: desk.disk.room.entries == 0, 5)
    assert desk.disk.dead == [] and desk.stored("lost") == [b"1"]


def test_a_dead_letter_list_is_sent_again_while_its_proxy_runs_and_keeps_what_is_refused_again(desk, tmp_path):
    buried = [
        dead.DeadEntry(1, "the topic was deleted", BufferEntry(topic, b"k", bytes([number] * 16), text, 1))
        for number, topic in enumerate(["safe", "plain", "safe"])
        for text in [encoded(topic=topic, body=b"%d" % number, key="k")]
    ]
    dead.DeadList(tmp_path).append(buried)
    for topic, left in (("safe", 1), (None, 0)):
        store = DeadFile(tmp_path, topic, SystemClock().now_ms)
        drainer = Drainer(store, desk.proxy.topics, 1000)
        wait_until(lambda store=store: store.room.entries == 0)
        drainer.stop()
        assert len(list(dead.read(tmp_path))) == dead.DeadList(tmp_path).count == left and store.refused == 0
    assert sorted(desk.stored("safe")) == [b"0", b"2", b"w"] and not list(tmp_path.iterdir())
    dead.DeadList(tmp_path).append(buried)
    desk.broker.batch_code = Code.TOO_LARGE
    store = DeadFile(tmp_path, None, SystemClock().now_ms)
    drainer = Drainer(store, desk.proxy.topics, 1000)
    wait_until(lambda: store.refused == 3)
    drainer.stop()
    assert len(list(dead.read(tmp_path))) == 3


def test_a_list_that_cannot_be_written_gets_each_entry_sent_once_and_says_what_it_still_has(
    desk, tmp_path, monkeypatch
):
    text = encoded(topic="safe", body=b"dead", key="k")
    entries = [BufferEntry("safe", b"k", bytes([number] * 16), text, 1) for number in range(3)]
    dead.DeadList(tmp_path).append([dead.DeadEntry(1, "too large", entry) for entry in entries])

    def refuse(directory, offsets):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(dead, "mark_done", refuse)
    monkeypatch.setattr(redrive_module, "PAUSE_S", 0.001)
    store = DeadFile(tmp_path, None, SystemClock().now_ms)
    drainer = Drainer(store, desk.proxy.topics, 1000)
    wait_until(lambda: store.undeleted == 3)
    drainer.stop()
    store.close()
    assert desk.stored("safe").count(b"dead") == 3 and drainer.drained == 3
    assert store.undeleted == 3 and "Read-only" in store.fault_of_list and len(list(dead.read(tmp_path))) == 3
    monkeypatch.undo()
    store.close()
    assert store.undeleted == 0 and not list(tmp_path.iterdir())


def test_a_dead_letter_list_that_takes_nothing_holds_up_no_other_topic(desk, monkeypatch):
    desk.broker.batch_code = Code.UNAVAILABLE
    assert desk.codes(message(b"1")) == [Code.BUFFERED]

    def refuse(kept, reason):
        raise BufferFull("the dead-letter list cannot be written")

    store = desk.disk
    store.put([BufferEntry("gone", b"k", bytes(16), encoded(topic="gone", body=b"x", key="k"), 1)])
    monkeypatch.setattr(desk.proxy.topics, "was_deleted", lambda topic: True)
    monkeypatch.setattr(store, "_dead_letter", refuse)
    desk.broker.batch_code = 0
    wait_until(lambda: store.room.entries == 1, 5)
    assert sorted(desk.stored("safe")) == [b"1", b"w"] and store.ordering_keys.holds("gone", b"k")


def test_what_was_diverted_before_it_was_sent_is_not_sent_as_well(desk):
    lanes = desk.proxy.brokers.only.append.lanes
    before = sum(lane.messages for lane in lanes)
    desk.broker.go.clear()
    calls = []
    for number in range(1, 7):
        calls.append(
            gevent.spawn(
                desk.codes, message(b"%d" % number), timeout_ms=400, durability=1, client=desk.another_client()
            )
        )
        wait_until(lambda number=number: sum(lane.waiting for lane in lanes) == number)
    in_flight = sum(lane.messages for lane in lanes) - before
    assert in_flight < 6
    assert [call.get(timeout=5) for call in calls] == [[Code.BUFFERED]] * 6
    desk.broker.go.set()
    desk.wait_drained()
    copies = [desk.stored("safe").count(b"%d" % number) for number in range(1, 7)]
    assert set(copies[in_flight:]) == {1} and all(copies) and len(set(desk.ids("safe"))) == 7


def test_a_buffered_message_does_not_shorten_the_time_of_the_others_of_its_call(desk):
    desk.broker.go.clear()
    call = gevent.spawn(desk.codes, message(b"1"), message(b"1", "plain"), client=desk.another_client())
    wait_until(lambda: desk.disk.room.entries == 1, 3)
    assert not call.ready()
    desk.broker.go.set()
    assert call.get(timeout=5) == [Code.BUFFERED, Code.OK] and desk.stored("plain").count(b"1") == 1


def test_a_buffer_that_takes_nothing_is_unavailable_and_a_timeout_stays_unknown(desk):
    desk.disk.broken = "the disk is full"
    desk.broker.go.clear()
    assert desk.codes(message(b"1"), timeout_ms=100) == [Code.TIMEOUT]
    desk.broker.go.set()
    desk.broker.batch_code = Code.UNAVAILABLE
    (result,) = desk.send(message(b"2"))
    assert (result.code, result.retry_after_ms) == (Code.UNAVAILABLE, 200)
    assert result.error == "the broker cannot be reached; nothing was stored"
    desk.broker.batch_code = 0
    assert desk.codes(message(b"3")) == [Code.OK]


def test_a_buffer_without_room_is_unavailable_tells_so_and_is_noted_on_readyz_until_there_is_room(desk):
    assert desk.proxy.health()["buffer disk"] is True
    desk.broker.batch_code = Code.UNAVAILABLE
    assert desk.codes(message(b"1")) == [Code.BUFFERED]
    desk.disk.room._limits = RoomLimits(desk.disk.room.bytes + 1)
    (result,) = desk.send(message(b"2"))
    assert (result.code, result.retry_after_ms, result.error) == (Code.UNAVAILABLE, 200, BUFFER_FULL)
    noted = desk.proxy.health()["buffer disk"]
    assert isinstance(noted, Note) and noted.startswith("buffer: full at")
    assert 'penstock_buffer_working{store="disk"} 0.0' in page(desk)
    desk.broker.batch_code = 0
    desk.wait_drained()
    assert desk.proxy.health()["buffer disk"] is True and 'penstock_buffer_working{store="disk"} 1.0' in page(desk)


def page(desk) -> str:
    registry = CollectorRegistry()
    registry.register(BufferMetrics(desk.proxy.buffering))
    return generate_latest(registry).decode()


def test_the_second_store_takes_what_the_first_refuses_and_waits_for_it_to_drain_first(desk):
    desk.broker.batch_code = Code.UNAVAILABLE
    assert desk.codes(message(b"1", "both")) == [Code.BUFFERED]
    desk.redis.broken = "gone"
    assert desk.codes(message(b"2", "both")) == [Code.BUFFERED]
    desk.redis.broken = None
    assert desk.codes(message(b"3", "both")) == [Code.BUFFERED]
    assert (desk.redis.room.entries, desk.disk.room.entries) == (1, 2)
    desk.broker.batch_code = 0
    desk.wait_drained()
    assert desk.stored("both") == [b"1", b"2", b"3"]


def test_a_buffer_that_is_switched_off_still_drains_in_order(desk):
    desk.broker.batch_code = Code.UNAVAILABLE
    assert desk.codes(message(b"1")) == [Code.BUFFERED]
    desk.config.put("topic", "safe", TopicDefinition("safe", queues=4).to_value(), 1)
    wait_until(lambda: not desk.proxy.buffer.takes("safe"))
    assert desk.codes(message(b"2")) == [Code.BUFFERED]  # it may not overtake
    assert desk.codes(message(b"3", key="other")) == [Code.UNAVAILABLE]
    desk.broker.batch_code = 0
    desk.wait_drained()
    assert [body for body in desk.stored("safe") if body != b"w"] == [b"1", b"2"]
