"""Dual read end to end: a real broker, `penstock up`, a Java consumer and a consumer of the proxy in one group.

What is counted is what both consumers have got, by the number in the body.
"""

import itertools
import threading
import time
from collections import Counter

import pytest

from common.config import open_store
from common.contract import Code
from common.kafka.base import ProducerOptions
from common.kafka.drivers import open_driver
from common.kafka.records import OutgoingRecords
from common.keyhash import queue_of
from common.shared_reads import hidden_topic
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
        "--group", GROUP, "--consumer-property", "auto.commit.interval.ms=100",
    )  # fmt: skip


def numbers_of(java):
    return [int(each) for each in java.lines() if each.isdigit()]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = Home(tmp_path_factory.mktemp("double"), "auto", [TOPIC]).start()
    made.create(TOPIC)
    made.penstock.run("group", "create", GROUP, "--order", "key")
    yield made
    made.close()


def test_a_group_shares_a_topic_with_a_java_consumer_over_a_killed_bridge(home):
    store = open_store((home.penstock.data / "config").as_uri())
    entry = {
        "group": GROUP,
        "topic": TOPIC,
        "cluster": "main",
        "queues": PARTITIONS,
        "made_ms": int(time.time() * 1000),
    }
    store.put("shared_read", hidden_topic(GROUP, TOPIC), entry, 0)
    load, member = KafkaLoad(home), PullingMember(home)
    T = time.time()
    until(lambda: len(member.found) > 20, "messages at the proxy", WAIT_S)
    print("proxy", time.time() - T)
    with java_consumer(home.brokers) as java:
        until(lambda: len(numbers_of(java)) > 20, "messages at Java", WAIT_S)
        print("java", time.time() - T)
        at = len(member.found)
        until(lambda: len(member.found) > at + 20, "messages at the proxy, too", WAIT_S)
        print("both", time.time() - T)
        home.penstock.wait_replaced("kafka_bridge", home.penstock.kill("kafka_bridge"))
        at = len(member.found)
        until(lambda: len(member.found) > at + 20, "messages at the proxy after the kill", WAIT_S)
        print("killed", time.time() - T)
        sent = load.stop()
        until(lambda: set(range(sent)) <= {*member.numbers(), *numbers_of(java)}, "everything", WAIT_S)
        print("all", time.time() - T, sent)
        of_java = numbers_of(java)
    member.stop()
    twice = [number for number, times in Counter(member.numbers() + of_java).items() if times > 1]
    print(len(twice), len(of_java), len(member.found))
    assert len(twice) <= FETCH_RECORDS_MAX * PARTITIONS
    for key in range(KEYS):
        found = [number for number in member.numbers() if number % KEYS == key and number not in twice]
        assert found == sorted(found), f"order of key {key}"
