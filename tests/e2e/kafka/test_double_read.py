"""Dual read end to end: a real broker, `penstock up`, a Java consumer and a consumer of the proxy in one group.

What is counted is what both consumers have got, by the number in the body.
"""

import itertools
import json
import threading
from collections import Counter
from contextlib import closing

import pytest

from common.config import open_store
from common.contract import Code, Message, Verdict
from common.kafka.base import ProducerOptions
from common.kafka.drivers import open_driver
from common.kafka.errors import KafkaFault
from common.kafka.records import OutgoingRecords, Partition
from common.keyhash import queue_of
from common.shared_reads import hidden_topic
from engine.client import copied
from engine.client.admin import AdminClient
from penstock.up.directory import ADMIN_KEY
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

    def __init__(self, home, group=GROUP, topic=TOPIC) -> None:
        self.found: list[tuple[str, int]] = []
        self._puller, self._topic, self._stopping = Puller(home, group), topic, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for each in self._puller.pull(self._topic, wait_ms=200):
                assert each.message.topic == self._topic
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
gates: {{lag_messages: 500, error_rate: 1}}
limits: {{soak_hours: 0}}
"""


def migrate(home, *arguments):
    done = home.penstock.call("migrate", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    made = Home(tmp_path_factory.mktemp("double"), "auto", [TOPIC, "work"]).start()
    made.penstock.run("group", "create", GROUP, "--order", "key")
    file = made.penstock.data / "plan.yaml"
    file.write_text(PLAN)
    migrate(made, "plan", str(file), "--accept", "lone-replica")
    yield made
    made.close()


def test_filters_verdicts_and_dead_letters_are_those_of_the_group_on_both_sides(home):
    run = home.penstock.run
    run("topic", "create", "work")
    run("group", "create", "careful", "--topic-filter", "work", "wanted", "--start", "latest")
    entry = {"group": "careful", "topic": "work", "cluster": "main", "queues": PARTITIONS, "made_ms": 1}
    with closing(open_store((home.penstock.data / "config").as_uri())) as store:
        version = store.put("shared_read", hidden_topic("careful", "work"), entry, 0)
        with closing(home.sender()) as sender, closing(Puller(home, "careful")) as puller:
            until(lambda: puller.pull("work", wait_ms=100) == [] and scope_is_known(home), "the dual read", WAIT_S)
            produce_tagged(home, "work", (b"from Kafka", b"wanted"), (b"no", b"other"), (b"no", None))
            sender.send(
                Message(topic="work", body=b"sent", tag="wanted"), Message(topic="work", body=b"no", tag="other")
            )
            found = {each.message.body: each for each in take(puller, "work", 2)}
            assert {body: (each.source, each.attempt) for body, each in found.items()} == {
                b"from Kafka": ("kafka:main", 1), b"sent": ("engine", 1)
            }  # fmt: skip
            puller.verdict(Verdict.RETRY, delay_ms=1)
            again = take(puller, "work", 2)
            assert {(each.message.body, each.source, each.attempt) for each in again} == {
                (b"from Kafka", "kafka:main", 2), (b"sent", "engine", 2)
            }  # fmt: skip
            puller.verdict(Verdict.REJECT)
            dead = {each.message.body: each for each in take(puller, "_dlq.careful", 2)}
            origins = {body: each.message.properties["dead_letter_topic"] for body, each in dead.items()}
            assert origins == {b"from Kafka": hidden_topic("careful", "work"), b"sent": "work"}
            assert {each.source for each in dead.values()} == {None}
            puller.pull("_dlq.careful", wait_ms=0)
        store.delete("shared_read", hidden_topic("careful", "work"), version)


def scope_is_known(home):
    """Whether the bridge has its partitions: from then on the group's position is at their ends."""
    with closing(open_driver().admin(home.connection)) as admin:
        try:
            return len(admin.group_offsets("careful")) == PARTITIONS
        except KafkaFault:  # a broker that has just started has no coordinator yet
            return False


def produce_tagged(home, topic, *rows):
    """Values and tags by a plain producer of Kafka."""
    producer = open_driver().producer(home.connection, ProducerOptions())
    try:
        producer.partitions(topic)
        headers = [[("penstock-tag", tag)] if tag else [] for _, tag in rows]
        count, codes = len(rows), []
        columns = [topic] * count, [0] * count, [1] * count, [b"k"] * count, [value for value, _ in rows], headers
        producer.produce(OutgoingRecords(*columns), lambda results: codes.extend(results.codes))
        assert producer.flush(WAIT_S) and set(codes) == {Code.OK}
    finally:
        producer.close(5)


def take(puller, topic, wanted):
    """So many deliveries, which the next pull acknowledges."""
    found, acks = [], []

    def pull():
        found.extend(puller.pull(topic, wait_ms=500))
        acks.extend(puller.acks)
        puller.acks = []
        return len(found) >= wanted

    until(pull, f"{wanted} of {topic}", WAIT_S)
    puller.acks = acks
    return found


def test_a_group_moves_from_kafka_while_a_java_consumer_is_a_member_and_a_bridge_is_killed(home):
    load = KafkaLoad(home)
    with java_consumer(home.brokers) as java:
        until(lambda: len(numbers_of(java)) > 20, "messages at Java", WAIT_S)
        assert migrate(home, "start", "shop")["step"] == "copying"
        member = PullingMember(home)
        until(lambda: len(member.found) > 20, "messages at the proxy, beside Java", WAIT_S)
        pid = home.penstock.kill("kafka_bridge")
        in_flight = stored_and_not_committed(home)
        home.penstock.wait_replaced("kafka_bridge", pid)
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
    assert_read_once_and_in_order(member, of_java, in_flight)


def stored_and_not_committed(home):
    """What a killed bridge had in flight: records that the engine has and that the group has not committed.

    Its membership ends seconds later, so nobody commits meanwhile.
    """
    hidden = hidden_topic(GROUP, TOPIC)
    with AdminClient(home.penstock.engine, (home.penstock.data / ADMIN_KEY).read_bytes()) as link:
        stored = [each.next for each in copied.states(link, [(hidden, number) for number in range(PARTITIONS)])]
    with closing(open_driver().admin(home.connection)) as admin:
        committed = admin.group_offsets(GROUP)
    return sum(max(0, at - committed.get(Partition(TOPIC, number), 0)) for number, at in enumerate(stored))


def assert_read_once_and_in_order(member, of_java, in_flight):
    """Nothing is twice but what was in flight at the kill; each key of a consumer is in order."""
    twice = {number for number, times in Counter(member.numbers() + of_java).items() if times > 1}
    print(f"{in_flight} in flight at the kill, {len(twice)} twice")
    assert len(twice) <= in_flight
    sources = [source for source, _ in member.found]
    assert {*sources} <= {"kafka:main", "engine", None}, "after the plan has ended there is one source"
    for numbers in (member.numbers(), of_java):
        for key in range(KEYS):
            found = [number for number in numbers if number % KEYS == key and number not in twice]
            assert found == sorted(found), f"order of key {key}"
