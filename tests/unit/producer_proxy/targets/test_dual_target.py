"""send to topics with a secondary: a real producer proxy with its journal, a broker in memory, a real bridge before a Kafka in memory."""

import pytest

import producer_proxy.proxy as proxy_module
from common.clock import SystemClock
from common.config.definitions import TopicDefinition
from common.contract import Code, Durability, Message
from common.keyhash import queue_of
from producer_proxy.journal.journal import RepairJournal
from producer_proxy.journal.journaling import Journaling
from tests.services.fake_broker import wait_until
from tests.unit.producer_proxy.send.desk import codes
from tests.unit.producer_proxy.targets.test_kafka_target import PARTITIONS, KafkaDesk

SIDES = {
    "out": {"secondary": "kafka:main", "queues": PARTITIONS, "id_window_ms": 0, "durability": "fsync"},
    "in": {"home": "kafka:main", "secondary": "engine", "queues": PARTITIONS, "id_window_ms": 0},
}


@pytest.fixture(params=["hot", "slow"])
def desk(request, monkeypatch, tmp_path):
    if request.param == "hot" and proxy_module.Front is None:
        pytest.skip("the hot path is not built in this run")
    now_ms = SystemClock().now_ms
    journaling = Journaling(RepairJournal(tmp_path / "journal", now_ms), now_ms)
    made = KafkaDesk(request.param == "hot", monkeypatch, tmp_path, journaling=journaling)
    for name, fields in SIDES.items():
        made.kafka.create(name, PARTITIONS)
        made.config.put("topic", name, TopicDefinition(name, **fields).to_value(), 0)
    wait_until(lambda: made.view.topic("in") is not None)
    yield made
    made.close()


def engine_records(desk, topic):
    """(queue, own id or None, encoded) of what the engine has."""
    number = desk.engine.topics[topic]["id"] if topic in desk.engine.topics else None
    return [(queue, each) for (found, queue), run in desk.engine.stored.items() if found == number for each in run]


def test_a_topic_at_home_in_the_engine_is_written_to_kafka_into_the_same_queue_under_the_same_id(desk):
    for number in range(10):
        (result,) = desk.send(Message(topic="out", key=f"k{number % 3}", body=b"%d" % number))
        assert (result.code, result.queue) == (Code.OK, queue_of(b"k%d" % (number % 3), PARTITIONS))
        wait_until(lambda: len(desk.kafka.records("out")) == number + 1)  # noqa: B023
        record = desk.kafka.partitions["out"][result.queue][-1]
        assert record.value == b"%d" % number and dict(record.headers)["penstock-id"] == result.id.encode()
    assert len(engine_records(desk, "out")) == 10


def test_a_message_without_a_key_goes_to_the_queue_that_the_primary_has_chosen(desk):
    for number in range(6):
        (result,) = desk.send(Message(topic="out"))
        wait_until(lambda: len(desk.kafka.records("out")) == number + 1)  # noqa: B023
        assert dict(desk.kafka.partitions["out"][result.queue][-1].headers)["penstock-id"] == result.id.encode()


def test_a_topic_at_home_in_kafka_is_written_to_the_engine(desk):
    results = desk.send(*[Message(topic="in", key=f"k{number}", id=f"m{number}") for number in range(5)])
    assert codes(results) == [Code.OK] * 5
    wait_until(lambda: len(engine_records(desk, "in")) == 5)
    assert sorted(queue for queue, _ in engine_records(desk, "in")) == sorted(each.queue for each in results)


def test_a_topic_with_a_secondary_takes_the_hot_path_once_its_pair_is_there(desk):
    assert codes(desk.send(Message(topic="out"))) == [Code.OK]
    before = 0 if desk.proxy.front is None else desk.proxy.front.hot_calls
    for number in range(5):
        assert codes(desk.send(Message(topic="out", key="k", body=b"%d" % number))) == [Code.OK]
    if desk.proxy.front is not None:
        assert desk.proxy.front.hot_calls == before + 5
    wait_until(lambda: len(desk.kafka.records("out")) == 6)
    queue = desk.kafka.partitions["out"][queue_of(b"k", PARTITIONS)]
    assert [each.value for each in queue][-5:] == [b"%d" % number for number in range(5)]


def test_a_change_of_the_configuration_sends_one_call_by_the_rare_path_and_the_next_ones_are_hot_again(desk):
    for turn in range(3):
        desk.config.put("topic", f"another-{turn}", TopicDefinition(f"another-{turn}", queues=1).to_value(), 0)
        wait_until(lambda: desk.view.topic(f"another-{turn}") is not None)  # noqa: B023
        for _ in range(2):
            assert codes(desk.send(Message(topic="out"))) == [Code.OK]
        before = 0 if desk.proxy.front is None else desk.proxy.front.hot_calls
        assert codes(desk.send(Message(topic="out"))) == [Code.OK]
        assert desk.proxy.front is None or desk.proxy.front.hot_calls == before + 1
    wait_until(lambda: len(desk.kafka.records("out")) == 9)


def test_a_topic_that_loses_its_secondary_is_not_copied_any_more(desk):
    for name in ("a", "b"):
        assert codes(desk.send(Message(topic="out", id=name))) == [Code.OK]
    wait_until(lambda: len(desk.kafka.records("out")) == 2)
    entry = desk.config.get("topic", "out")
    desk.config.put("topic", "out", {**entry.value, "secondary": ""}, entry.version)
    wait_until(lambda: desk.view.topic("out").secondary == "")
    for name in ("c", "d"):
        assert codes(desk.send(Message(topic="out", id=name))) == [Code.OK]
    wait_until(lambda: desk.proxy.journaling.held() == set())
    assert len(engine_records(desk, "out")) == 4 and len(desk.kafka.records("out")) == 2


def test_a_topic_that_gets_a_secondary_while_it_is_in_use_is_copied_from_then_on(desk):
    desk.kafka.create("orders", 8)
    desk.send(Message(topic="orders", id="before"))
    entry = desk.config.get("topic", "orders")
    desk.config.put("topic", "orders", {**entry.value, "secondary": "kafka:main"}, entry.version)
    wait_until(lambda: desk.view.topic("orders").secondary != "")
    assert codes(desk.send(Message(topic="orders", id="after"))) == [Code.OK]
    wait_until(lambda: len(desk.kafka.records("orders")) == 1)
    assert dict(desk.kafka.records("orders")[0].headers)["penstock-id"] == b"after"


def test_a_kafka_that_hangs_or_refuses_is_none_of_the_callers_business(desk):
    desk.kafka.is_holding = True
    assert codes(desk.send(Message(topic="out", id="a"), Message(topic="out", id="b"))) == [Code.OK] * 2
    wait_until(lambda: desk.kafka.held)
    desk.kafka.release()
    wait_until(lambda: desk.proxy.journaling.pairs["engine", "kafka:main"].copies.idle)
    desk.kafka.refusal = int(Code.UNAVAILABLE), "away"
    assert codes(desk.send(Message(topic="out", id="c", key="k"))) == [Code.OK]
    journaling = desk.proxy.journaling
    wait_until(lambda: journaling.backlog.count == 1)
    assert "away" in str(desk.proxy.health()["secondary kafka:main"])
    desk.kafka.refusal = None
    wait_until(lambda: not journaling.backlog.count)
    assert [dict(each.headers)["penstock-id"] for each in desk.kafka.partitions["out"][queue_of(b"k", 3)]][-1:] == [
        b"c"
    ]


def test_what_the_secondary_could_not_follow_is_refused_by_field_and_a_durability_is_the_primarys_matter(desk):
    for message, fields in (
        (Message(topic="out", delay_ms=1_000), {}),
        (Message(topic="out"), {"reply_wait_ms": 1_000}),
        (Message(topic="out", properties={"penstock-id": "x"}), {}),
    ):
        (result,) = desk.send(message, **fields)
        assert result.code == Code.INVALID
        assert "engine and kafka:main" in result.error or "penstock-" in result.error
    assert codes(desk.send(Message(topic="out"), durability=Durability.FSYNC)) == [Code.OK]
    assert len(engine_records(desk, "out")) == 1


def test_a_buffered_message_is_drained_to_both_sides(desk):
    entry = desk.config.get("topic", "k.safe")
    desk.config.put("topic", "k.safe", {**entry.value, "secondary": "engine", "queues": PARTITIONS}, entry.version)
    wait_until(lambda: desk.view.topic("k.safe").secondary != "")
    desk.kafka.refusal = int(Code.UNAVAILABLE), "away"
    assert codes(desk.send(Message(topic="k.safe", key="a", body=b"kept"))) == [Code.BUFFERED]
    desk.kafka.refusal = None
    wait_until(lambda: len(desk.kafka.records("k.safe")) == 1)
    wait_until(lambda: len(engine_records(desk, "k.safe")) == 1)


def test_a_bridge_that_is_away_does_not_delay_the_first_message(desk, monkeypatch):
    waited = []
    monkeypatch.setattr(
        "engine.client.rpc.RpcClient.wait_connected", lambda self, timeout_s=None: waited.append(timeout_s)
    )
    desk.bridge.kill()
    assert codes(desk.send(Message(topic="out", id="a"))) == [Code.OK]
    assert waited == []
    wait_until(lambda: desk.proxy.journaling.backlog.count == 1)
    desk.bridge.start()
    wait_until(lambda: not desk.proxy.journaling.backlog.count, 10.0)
    assert len(desk.kafka.records("out")) == 1
