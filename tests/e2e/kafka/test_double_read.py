"""Dual read end to end: a real broker, `penstock up`, a Java consumer and a consumer of the proxy in one group.

What is counted is what both consumers have got, by the number in the body.
"""

import itertools
import json
import threading
from collections import Counter

import pytest

from common.contract import Code, Message
from common.kafka.base import ProducerOptions
from common.kafka.drivers import open_driver
from common.kafka.records import OutgoingRecords
from common.keyhash import queue_of
from kafka_bridge.shared_read.read_ahead import FETCH_RECORDS_MAX
from tests.e2e.kafka.home import PARTITIONS, Home, Puller
from tests.waiting import until

GROUP, TOPIC, KEYS = "workers", "orders", 12
WAIT_S = 60.0


class KafkaLoad:
    """A plain producer of Kafka that never stops: key and number, each as its own record."""

    def __init__(self, home) -> None:
        self._producer = open_driver().producer(home.connection, ProducerOptions())
        self._producer.partitions(TOPIC)
        self.sent = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopping.wait(0.005):
                return
            key = b"k%d" % (number % KEYS)
            columns = [TOPIC], [queue_of(key, PARTITIONS)], [1], [key], [b"%d" % number], [()]
            self._producer.produce(OutgoingRecords(*columns), self._note)
            self.sent = number + 1

    def _note(self, results) -> None:
        assert set(results.codes) == {Code.OK}

    def stop(self) -> int:
        """Stop it; returns how many were sent."""
        self._stopping.set()
        self._thread.join(WAIT_S)
        assert self._producer.flush(WAIT_S)
        self._producer.close(5)
        return self.sent


class PullingMember:
    """A consumer of the proxy in a thread: what it got, as (source, number), in order."""

    def __init__(self, home) -> None:
        self.found: list[tuple[str, int]] = []
        self._puller, self._stopping = Puller(home, GROUP), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for each in self._puller.pull(TOPIC, wait_ms=200):
                assert each.message.topic == TOPIC
                self.found.append((each.source, int(each.message.body)))

    def numbers(self, source=None) -> list[int]:
        return [number for of, number in [*self.found] if source in (None, of)]

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(WAIT_S)
        self._puller.close()


def java_consumer(brokers):
    return brokers.program(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", brokers.bootstrap, "--topic", TOPIC,
        "--group", GROUP, "--consumer-property", "auto.commit.interval.ms=100", "--from-beginning",
    )  # fmt: skip


def numbers_of(java):
    return [int(each) for each in java.lines() if each.isdigit()]


class ProxyLoad:
    """A sender through the proxy that never stops, and sends again what was not taken, under its id."""

    def __init__(self, home, first) -> None:
        self.first = self.sent = first
        self._sender, self._stopping = home.sender(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count(self.first):
            if self._stopping.is_set():
                return
            message = Message(topic=TOPIC, key=f"k{number % KEYS}", body=b"%d" % number, id=f"m{number}")
            while (result := self._sender.send(message)[0]).code != Code.OK:
                assert result.code // 100 == 2 and not self._stopping.wait((result.retry_after_ms or 50) / 1000), result
            self.sent = number + 1

    def stop(self) -> int:
        self._stopping.set()
        self._thread.join(WAIT_S)
        self._sender.close()
        return self.sent


PLAN = f"""\
name: shop
recipe: double_read
cluster: main
topics: [{TOPIC}]
groups: [{GROUP}]
gates: {{lag_messages: 500}}
limits: {{soak_hours: 0}}
"""


def migrate(home, *arguments):
    done = home.penstock.call("migrate", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = Home(tmp_path_factory.mktemp("double"), "auto", [TOPIC]).start()
    made.penstock.run("group", "create", GROUP, "--order", "key")
    file = made.penstock.data / "plan.yaml"
    file.write_text(PLAN)
    migrate(made, "plan", str(file), "--accept", "lone-replica")
    yield made
    made.close()


def test_a_group_moves_from_kafka_while_a_java_consumer_is_a_member_and_a_bridge_is_killed(home):
    load = KafkaLoad(home)
    with java_consumer(home.brokers) as java:
        until(lambda: len(numbers_of(java)) > 20, "messages at Java", WAIT_S)
        assert migrate(home, "start", "shop")["step"] == "copying"
        member = PullingMember(home)
        until(lambda: len(member.found) > 20, "messages at the proxy, beside Java", WAIT_S)
        home.penstock.wait_replaced("kafka_bridge", home.penstock.kill("kafka_bridge"))
        at = len(member.found)
        until(lambda: len(member.found) > at + 20, "messages at the proxy after the kill", WAIT_S)
        moved = ProxyLoad(home, load.stop())
        of_java = numbers_of(java)
        until(lambda: len(numbers_of(java)) > len(of_java), "what the proxy sends at Java", WAIT_S)
        assert migrate(home, "verify", "shop")["step"] == "verified"
        assert migrate(home, "cut", "shop")["step"] == "cut"
        until(lambda: len(member.numbers("engine")) > 20, "messages of the engine's side", WAIT_S)
    of_java = numbers_of(java)
    assert migrate(home, "soak", "shop")["step"] == "soaking"
    assert migrate(home, "retire", "shop")["step"] == "retired"
    sent = moved.stop()
    until(lambda: set(range(sent)) <= {*member.numbers(), *of_java}, "everything", WAIT_S)
    member.stop()
    assert home.penstock.run("topic", "show", TOPIC).get("home", "engine") == "engine"
    assert_read_once_and_in_order(member, of_java)


def assert_read_once_and_in_order(member, of_java):
    """Nothing is twice but at most a batch per partition, by the kill; each key of a consumer is in order."""
    twice = {number for number, times in Counter(member.numbers() + of_java).items() if times > 1}
    assert len(twice) <= FETCH_RECORDS_MAX * PARTITIONS
    sources = [source for source, _ in member.found]
    assert {*sources} <= {"kafka:main", "engine", None}, "after the plan has ended there is one source"
    for numbers in (member.numbers(), of_java):
        for key in range(KEYS):
            found = [number for number in numbers if number % KEYS == key and number not in twice]
            assert found == sorted(found), f"order of key {key}"
