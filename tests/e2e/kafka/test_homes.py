"""Topics whose home is Kafka, end to end: `penstock up`, Thrift clients, and real brokers that a reader reads."""

import itertools
import signal
import threading
from contextlib import closing

import pytest

from common.contract import Code, Message
from common.kafka.drivers import DRIVERS, installed
from common.keyhash import queue_of
from tests.e2e.kafka.home import PARTITIONS, Home
from tests.services import require
from tests.waiting import until

NEVER_STORED = {Code.UNAVAILABLE, Code.OVERLOADED}
SERVES_S_MAX = 60.0


@pytest.fixture(scope="module", params=DRIVERS)
def home(request, tmp_path_factory):
    require(request.param in installed(), f"pip install {request.param}")
    made = Home(tmp_path_factory.mktemp("home"), request.param, ["orders", "stops", "kills", "safe", "lone"])
    for name in ("orders", "stops", "kills"):
        made.create(name)
    made.create("safe", "--buffer", "disk")
    made.penstock.run("topic", "create", "local")
    yield made.start()
    made.close()


def test_messages_arrive_with_keys_partitions_headers_and_ids(home):
    sent = [
        Message(topic="orders", key=f"k{number % 7}", body=b"%d" % number, tag="t", properties={"n": str(number)})
        for number in range(200)
    ]
    with closing(home.sender()) as sender:
        results = [
            result for batch in (sent[at : at + 50] for at in range(0, 200, 50)) for result in sender.send(*batch)
        ]
        (own,) = sender.send(Message(topic="orders", id="mine", body=b"own"))
        (local,) = sender.send(Message(topic="local", body=b"engine"))
    assert {each.code for each in results} == {own.code, local.code} == {Code.OK}
    by_id = {headers["penstock-id"].decode(): rest for *rest, headers in home.records("orders", 201)}
    for message, result in zip(sent, results, strict=True):
        partition, key, value = by_id[result.id]
        assert (partition, key, value) == (result.queue, message.key.encode(), message.body)
        assert partition == queue_of(key, PARTITIONS) and result.offset is None
    assert by_id["mine"][2] == b"own"
    found = {headers["penstock-id"].decode(): headers for *_, headers in home.records("orders", 201)}
    assert found[results[5].id] == {"penstock-id": results[5].id.encode(), "penstock-tag": b"t", "n": b"5"}


def test_messages_of_one_key_keep_their_order(home):
    values = [value for _, key, value, _ in home.records("orders", 201) if key == b"k3"]
    assert values == [b"%d" % number for number in range(200) if number % 7 == 3]


def test_the_command_gives_a_topic_the_partitions_of_kafka_and_refuses_what_does_not_fit(home):
    shown = home.penstock.run("topic", "show", "orders")
    assert (shown["queues"], shown["home"], shown["id_window_s"]) == (PARTITIONS, "kafka:main", 0)
    lone = home.penstock.call("topic", "create", "lone", "--home", "kafka:main")
    assert (
        lone.returncode == 4
        and b"min.insync.replicas is below 2" in lone.stderr
        and b"--accept lone-replica" in lone.stderr
    )
    queues = home.penstock.call(
        "topic", "create", "lone", "--home", "kafka:main", "--accept", "lone-replica", "--queues", "3"
    )
    assert queues.returncode == 2 and b"it has 4 partitions in Kafka: leave --queues out" in queues.stderr
    missing = home.penstock.call("topic", "create", "nowhere", "--home", "kafka:main")
    assert missing.returncode == 3 and b'topic "nowhere": not found: create it there' in missing.stderr
    unknown = home.penstock.call("topic", "create", "lone", "--home", "kafka:other")
    assert unknown.returncode == 3 and b'kafka "other": not found' in unknown.stderr
    for each in (lone, queues, missing, unknown):
        assert len(each.stderr.splitlines()) == 1
    assert home.penstock.call("topic", "show", "lone").returncode == 3


def test_the_status_of_up_shows_the_bridge(home):
    processes = {each["name"]: each for each in home.penstock.run("status")["processes"]}
    assert processes["kafka_bridge"]["ready"] == "yes"


class Load:
    """Sends numbered messages one by one until it is stopped, and notes the codes that their ids got."""

    def __init__(self, home, topic) -> None:
        self.codes: dict[str, int] = {}
        self._sender, self._topic, self._stopping = home.sender(), topic, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopping.is_set():
                return
            name = f"m{number}"
            (result,) = self._sender.send(Message(topic=self._topic, id=name, body=name.encode()), timeout_ms=1_000)
            self.codes[name] = result.code
            if result.code != Code.OK:
                self._stopping.wait(0.02)  # a pace, not a wait for anything

    def wait_for(self, code, count=1) -> None:
        """Wait for `count` more answers with this code."""
        before = self.count(code)
        until(lambda: self.count(code) >= before + count, f"{count} answers with code {code}", SERVES_S_MAX)

    def count(self, code) -> int:
        return sum(each == code for each in list(self.codes.values()))

    def stop(self) -> dict[str, int]:
        self._stopping.set()
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._sender.close()
        return self.codes


def assert_nothing_is_lost(home, topic, codes):
    """What was OK is in Kafka; what was UNAVAILABLE or OVERLOADED is not; no other code was given but TIMEOUT."""
    assert set(codes.values()) <= {Code.OK, Code.TIMEOUT, *NEVER_STORED}
    stored_ok = {name for name, code in codes.items() if code == Code.OK}
    found = {headers["penstock-id"].decode() for *_, headers in home.records(topic, len(stored_ok))}
    assert stored_ok - found == set()
    assert {name for name, code in codes.items() if code in NEVER_STORED} & found == set()


def test_while_the_broker_is_stopped_no_send_is_ok_and_afterwards_they_are_again(home):
    load = Load(home, "stops")
    load.wait_for(Code.OK, 20)
    home.brokers.kill(1)
    stopped_at = load.count(Code.OK)
    load.wait_for(Code.UNAVAILABLE, 3)
    assert load.count(Code.OK) <= stopped_at + 1, "one answer may have been on its way"
    with closing(home.sender()) as sender:
        assert [each.code for each in sender.send(Message(topic="local"))] == [Code.OK], "the engine is not touched"
        assert [each.code for each in sender.send(Message(topic="safe", id="kept", body=b"kept"))] == [Code.BUFFERED]
    home.brokers.restart(1)
    load.wait_for(Code.OK, 20)
    assert_nothing_is_lost(home, "stops", load.stop())
    assert {value for _, _, value, _ in home.records("safe", 1)} == {b"kept"}, "the buffer is drained to Kafka"


def test_a_killed_bridge_is_started_again_and_loses_nothing_that_was_ok(home):
    load = Load(home, "kills")
    for _ in range(5):
        load.wait_for(Code.OK, 20)
        pid = home.penstock.kill("kafka_bridge", signal.SIGKILL)
        home.penstock.wait_replaced("kafka_bridge", pid)
    load.wait_for(Code.OK, 20)
    assert_nothing_is_lost(home, "kills", load.stop())
