"""The copier from the engine to Kafka, end to end: a real engine and broker, and a copier that is killed at any moment."""

import os
import random
import subprocess
import sys
import threading
import uuid
from contextlib import closing, contextmanager
from functools import partial

import pytest

from common.config import ConfigView
from common.config.definitions import KafkaClusterDefinition
from common.config.definitions.copies import CopyOutDefinition
from common.config.memory_store import MemoryConfigStore
from common.contract import Message, encode_struct
from common.kafka.base import END, NewKafkaTopic, ProducerOptions, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.copy_mark import COPY_HEADER, parse_copy_mark
from common.kafka.drivers import DRIVERS, installed, open_driver
from common.kafka.records import OutgoingRecords, Partition
from engine.client import copied
from engine.client.admin import AdminClient
from engine.client.blocking import LeadingLink
from engine.link.append import FSYNC
from engine.link.batch import encode_copied_batch
from engine.link.codes import OK
from engine.link.copy import CopyPart, ForeignSource
from engine.link.operations import READ, TOPIC
from engine.link.proof import KAFKA_BRIDGE_ROLE
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from engine.link.record import encode_copied_record, read_record
from engine.link.topic import encode_topics
from kafka_bridge.connecting import FollowedConnection
from kafka_bridge.copy_out import copier, turns
from kafka_bridge.copy_out.copier import OutCopier
from kafka_bridge.copy_out.engine_reads import EngineReads, QueueLink
from kafka_bridge.copy_out.looks import EngineLooks
from kafka_bridge.copy_out.positions import group_of
from kafka_bridge.copy_out.turns import CopyTurns
from tests import link_bytes as raw
from tests.e2e.test_engine_process import ADMIN_SECRET, KEY, EngineProcess
from tests.services import require
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

QUEUES = 2
KILLS = int(os.environ.get("PENSTOCK_KILLS", "4"))
READ_S_MAX = 90.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    require(installed(), "pip install kafka-python")
    with KafkaBrokers(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture(params=DRIVERS)
def driver(request):
    require(request.param in installed(), f"pip install {request.param}")
    return request.param


@pytest.fixture
def engine(tmp_path):
    made = EngineProcess(tmp_path / "engine")
    yield made
    made.process.kill()
    made.process.wait(10)


class Both:
    """A topic of the engine and one of Kafka."""

    def __init__(self, engine, brokers, driver) -> None:
        self.engine, self.driver, self.name = engine, driver, f"t{uuid.uuid4().hex[:8]}"
        self.brokers, self.connection = brokers, KafkaConnection("main", (brokers.bootstrap,))
        self.admin = open_driver().admin(self.connection)
        assert self.admin.create_topics({self.name: NewKafkaTopic(QUEUES, 1)}) == {}
        until(lambda: self.admin.topics([self.name]), "the topic", 30.0)
        self.link, self.appends = AdminClient(engine.address, ADMIN_SECRET), engine.link()
        assert self.link.call(TOPIC, encode_topics([(self.name, QUEUES)]))[0] == OK
        self.topic_id = copied.states(self.link, [(self.name, 0)])[0].topic_id
        self.partitions = [Partition(self.name, number) for number in range(QUEUES)]

    def append(self, queue, names):
        messages = [encode_struct(Message(topic=self.name, id=name, key="k", body=name.encode())) for name in names]
        code, payload = self.appends.ask(raw.APPEND, raw.append(raw.FSYNC, raw.batch(self.topic_id, queue, messages)))
        assert code == OK, payload

    def start_copier(self):
        line = [sys.executable, "-m", "tests.e2e.kafka.out_copier", self.driver, *self.connection.bootstrap]
        return subprocess.Popen([*line, str(self.engine.address[1]), self.name, str(QUEUES), self.name])

    @contextmanager
    def copier(self):
        process = self.start_copier()
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def copied(self):
        """Next engine offsets that are committed in Kafka."""
        found = self.admin.group_offsets(group_of(CopyOutDefinition(self.name, cluster="main")))
        return {each.number: at for each, at in found.items()}

    def records(self, committed_only=True):
        """(value, headers) per partition, up to the present end."""
        ends = self.admin.offsets(self.partitions, END)
        found = {number: [] for number in range(QUEUES)}
        with closing(open_driver().reader(self.connection, ReaderOptions(committed_only=committed_only))) as reader:
            reader.assign(dict.fromkeys(self.partitions, 0))

            def read():
                for each in reader.poll(0.2):
                    rows = zip(each.values, each.headers, strict=True)
                    found[each.partition.number] += [(value, dict(headers)) for value, headers in rows]
                return all(reader.positions()[each] >= end for each, end in ends.items())

            until(read, "the records", READ_S_MAX)
        return found

    def stored(self, queue):
        """Bodies of the engine's messages."""
        position, bodies = ReadPosition(self.name, queue, offset=0), []
        code, payload = self.link.call(READ, ReadQuestion([position], 10_000, 8 << 20).encode())
        assert code == OK
        for piece in ReadAnswer.decode(payload).pieces():
            at = 0
            for _ in range(piece.count):
                record, at = read_record(piece.records, at)
                bodies.append(record)
        return bodies


@pytest.fixture
def both(engine, brokers, driver):
    made = Both(engine, brokers, driver)
    yield made
    made.link.close()
    made.admin.close()


def test_every_message_is_copied_once_and_in_order_over_kills_of_the_copier(both):
    chance, sent, stopping = random.Random(7), dict.fromkeys(range(QUEUES), 0), threading.Event()

    def load():
        while not stopping.is_set():
            for queue in range(QUEUES):
                count = chance.randint(1, 20)
                both.append(queue, [f"{queue}-{each}" for each in range(sent[queue], sent[queue] + count)])
                sent[queue] += count
            stopping.wait(0.01)  # a pace, not a wait for anything

    sending = threading.Thread(target=load, daemon=True)
    sending.start()
    for _ in range(KILLS):
        with both.copier():
            before = sum(both.copied().values())
            until(lambda before=before: sum(both.copied().values()) > before + 20, "messages are copied", READ_S_MAX)
    stopping.set()
    sending.join(20)
    with both.copier():
        until(lambda: both.copied() == sent, "all are copied", READ_S_MAX)
    found = both.records()
    for queue, rows in found.items():
        assert [value for value, _ in rows] == [b"%d-%d" % (queue, each) for each in range(sent[queue])]
        marks = [parse_copy_mark(headers[COPY_HEADER]) for _, headers in rows]
        assert [mark.offset for mark in marks] == [*range(sent[queue])]
        assert {(mark.queue, mark.topic_id) for mark in marks} == {(queue, both.topic_id)}
        assert all(mark.matches(b"k", value) for mark, (value, _) in zip(marks, rows, strict=True))
        assert [headers["penstock-id"] for _, headers in rows] == [value for value, _ in rows]


def test_a_lost_position_is_found_again_by_the_last_copied_record(both):
    require("confluent-kafka" in installed(), "pip install confluent-kafka")  # it deletes the group
    both.append(0, ["a", "b"])
    with both.copier():
        until(lambda: both.copied().get(0) == 2, "the copy", READ_S_MAX)
    line = subprocess.run(
        [sys.executable, "-c", FORGET, *both.connection.bootstrap, group_of(CopyOutDefinition(both.name))],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert line.returncode == 0, line.stderr
    assert both.copied() == {}
    both.append(0, ["c"])
    with both.copier():
        until(lambda: both.copied().get(0) == 3, "the copy goes on", READ_S_MAX)
    assert [value for value, _ in both.records()[0]] == [b"a", b"b", b"c"]


FORGET = """
import sys
from confluent_kafka.admin import AdminClient
admin = AdminClient({"bootstrap.servers": sys.argv[1]})
for done in admin.delete_consumer_groups([sys.argv[2]]).values():
    done.result()
"""


class CountingDriver:
    """A driver that knows how many of its producers are open."""

    def __init__(self, name) -> None:
        self._driver, self.open_producers, self.open_producers_max = open_driver(name), 0, 0
        self.admin, self.reader = self._driver.admin, self._driver.reader

    def producer(self, connection, options):
        made = self._driver.producer(connection, options)
        self.open_producers += 1
        self.open_producers_max = max(self.open_producers_max, self.open_producers)
        close = made.close

        def closed(timeout_s) -> None:
            close(timeout_s)
            self.open_producers -= 1

        made.close = closed
        return made


class Turns:
    """The copies of one cluster, as a bridge has them."""

    def __init__(self, both, driver, topics) -> None:
        cluster = KafkaClusterDefinition("main", bootstrap=both.connection.bootstrap[0])
        store = MemoryConfigStore()
        for each in topics:
            store.put("topic", each, {"queues": QUEUES}, 0)
        self._view, self._both = ConfigView(store), both
        self.turns = CopyTurns("main", driver, lambda: FollowedConnection(cluster), self._looks)
        self.copiers = [
            OutCopier(CopyOutDefinition(each, cluster="main"), partial(self._open, each)) for each in topics
        ]
        for each in self.copiers:
            self.turns.add(each)

    def _looks(self):
        groups = {"main": (self._both.engine.address,)}
        return EngineLooks(self._view, lambda: groups, lambda name, at: LeadingLink(at, KEY, KAFKA_BRIDGE_ROLE))

    def _open(self, topic):
        link = AdminClient(self._both.engine.address, ADMIN_SECRET)
        return EngineReads(topic, [QueueLink(link, link.hello.log_id, range(QUEUES))])

    def close(self) -> None:
        for each in self.copiers:
            each.stop()
        assert all(each.join(READ_S_MAX) for each in self.copiers)
        self._view.close()


@pytest.fixture
def quickly(monkeypatch):
    monkeypatch.setattr(copier, "IDLE_S", 0.5)
    monkeypatch.setattr(turns, "IDLE_S", 0.5)
    monkeypatch.setattr(turns, "LOOK_S", 0.05)


def test_a_quiet_copy_has_no_producer_and_goes_on_with_the_next_message(both, quickly):
    driver = CountingDriver(both.driver)
    with closing(Turns(both, driver, [both.name])) as copying:
        for number in range(3):
            both.append(number % QUEUES, [f"m{number}"])
            until(lambda number=number: sum(both.copied().values()) == number + 1, "the message is copied", READ_S_MAX)
            until(lambda: driver.open_producers == 0, "the producer to be closed", READ_S_MAX)
            assert copying.copiers[0].fault == ""
    assert {number: [value for value, _ in rows] for number, rows in both.records().items()} == {
        0: [b"m0", b"m2"], 1: [b"m1"]
    }  # fmt: skip


def test_more_copies_than_producers_take_turns_and_one_that_fails_does_not_stop_them(both, quickly, monkeypatch):
    monkeypatch.setattr(turns, "PRODUCERS_MAX", 2)
    driver, others = CountingDriver(both.driver), [Both(both.engine, both.brokers, both.driver) for _ in range(5)]
    missing = f"{both.name}-missing"  # Kafka does not have it
    assert both.link.call(TOPIC, encode_topics([(missing, QUEUES)]))[0] == OK
    with closing(Turns(both, driver, [missing, *(each.name for each in others)])) as copying:
        for number in range(3):
            for each in others:
                each.append(0, [f"m{number}"])
            for each in others:
                until(lambda each=each, number=number: each.copied().get(0) == number + 1, "the message", READ_S_MAX)
        assert driver.open_producers_max == 2
        assert "does not exist" in copying.copiers[0].fault and [each.fault for each in copying.copiers[1:]] == [""] * 5
        assert [each.copied for each in copying.copiers] == [0, 3, 3, 3, 3, 3]
    until(lambda: driver.open_producers == 0, "the producers to be closed", READ_S_MAX)
    for each in others:
        assert [value for value, _ in each.records()[0]] == [b"m0", b"m1", b"m2"]
        each.link.close()
        each.admin.close()


class InCopier(threading.Thread):
    """InCopies the Kafka topic into the engine's topic, but for records that the other copier has made of it."""

    def __init__(self, both) -> None:
        super().__init__(daemon=True)
        self.both, self.stopping, self.skipped = both, threading.Event(), 0
        self.positions = dict.fromkeys(both.partitions, 0)
        topic = both.admin.topics([both.name])[both.name]
        self.source = f"cluster/{topic.id.hex}".encode()
        self.start()

    def run(self):
        both = self.both
        with AdminClient(both.engine.address, ADMIN_SECRET) as link:
            self.log_id = link.hello.log_id
            for queue in range(QUEUES):
                source = ForeignSource(self.source, queue)
                copied.accept(link, both.name, queue, source, start=0, replaces=0, reason="a test")
            with closing(open_driver().reader(both.connection, ReaderOptions())) as reader:
                reader.assign(self.positions)
                while not self.stopping.is_set():
                    for polled in reader.poll(0.1):
                        self._copy(link, polled)
                        self.positions[polled.partition] = polled.next_offset

    def _copy(self, link, polled):
        records, queue = [], polled.partition.number
        for offset, key, value, headers in zip(polled.offsets, polled.keys, polled.values, polled.headers, strict=True):
            mark = parse_copy_mark(dict(headers).get(COPY_HEADER))
            if mark and (mark.log_id, mark.topic_id) == (self.log_id, self.both.topic_id) and mark.matches(key, value):
                self.skipped += 1
                continue
            message = encode_struct(Message(topic=self.both.name, key=key.decode(), body=value))
            records.append(encode_copied_record(message, offset))
        if records:
            (state,) = copied.states(link, [(self.both.name, queue)])
            batch = encode_copied_batch(state.topic_id, queue, state.number, records)
            part = CopyPart(ForeignSource(self.source, queue), state.next, batch)
            (result,) = copied.copy(link, FSYNC, [part])
            assert result.code == OK


@contextmanager
def open_producer(both):
    producer = open_driver().producer(both.connection, ProducerOptions())
    yield producer
    producer.close(5.0)


def test_copies_both_ways_of_one_topic_do_not_loop(both):
    inward = InCopier(both)
    with both.copier(), open_producer(both) as producer:
        for each in range(20):
            both.append(each % QUEUES, [f"engine-{each}"])
            values = [b"kafka-%d" % each]
            record = OutgoingRecords([both.name], [each % QUEUES], [1_700_000_000_000], [b"k"], values, [[]])
            producer.produce(record, lambda results: None)
        assert producer.flush(30)

        def is_quiet():
            """Both copiers have read all there is, and the ends do not move while they are compared."""
            ends = both.admin.offsets(both.partitions, END)
            stored = {queue: len(both.stored(queue)) for queue in range(QUEUES)}
            return both.copied() == stored and inward.positions == ends and sum(stored.values()) >= 40

        until(is_quiet, "both copiers have read everything", READ_S_MAX)
    inward.stopping.set()
    inward.join(20)
    wanted = {f"{where}-{each}".encode() for each in range(20) for where in ("engine", "kafka")}
    values = [value for rows in both.records().values() for value, _ in rows]
    assert len(values) == 40 and set(values) == wanted
    assert sum(len(both.stored(queue)) for queue in range(QUEUES)) == 40
    assert inward.skipped == 20, "what came from the engine was not copied back"
