"""A copy to Kafka after the engine was put back to an older copy and got other messages: it stops, and says from where."""

import shutil
import signal
from types import SimpleNamespace

import pytest

from common.config.definitions.copies import CopyOutDefinition
from common.contract import Message, encode_struct
from common.kafka.base import STABLE_END, ReaderOptions
from common.kafka.group_admin import CommittedPosition
from common.kafka.records import Partition
from engine.client.admin import AdminClient
from engine.client.single_reads import MessageAt
from engine.link.append import FSYNC, encode_append
from engine.link.batch import encode_batch
from engine.link.codes import OK
from engine.link.operations import APPEND, TOPIC
from engine.link.record import encode_record
from engine.link.topic import encode_topics
from kafka_bridge.copy_out.copier import OutCopier
from kafka_bridge.copy_out.engine_reads import EngineReads, QueueLink
from kafka_bridge.copy_out.page import EngineTopic
from kafka_bridge.copy_out.positions import group_of
from kafka_bridge.copy_out.tails import CopiedTails, TailRange
from tests.e2e.test_engine_process import ADMIN_SECRET, EngineProcess
from tests.services.memory_kafka import MemoryKafka, MemoryKafkaAdmin, MemoryKafkaProducer, MemoryKafkaReader

TOPIC_NAME, PARTITION = "orders", Partition("orders", 0)
COPY = CopyOutDefinition(TOPIC_NAME, cluster="main")


class CommittingProducer(MemoryKafkaProducer):
    """Its transactions are what it has produced."""

    def begin(self) -> None:
        """Nothing is held back."""

    def commit(self, positions, group, notes) -> None:
        kept = self._cluster.committed.setdefault(group, {})
        kept |= {each: CommittedPosition(at, notes[each]) for each, at in positions.items()}


class Desk:
    """A topic of a real engine with one queue, its copy to a Kafka in memory, and turns of a copier one by one."""

    def __init__(self, folder) -> None:
        self.engine, self.folder = EngineProcess(folder / "engine"), folder
        self.kafka = MemoryKafka(orders=1)
        with self.link() as link:
            assert link.call(TOPIC, encode_topics([(TOPIC_NAME, 1)]))[0] == OK
        self.clients = SimpleNamespace(
            refresh=lambda: SimpleNamespace(opened=None, is_outdated=lambda: False), close=lambda: None,
            admin=lambda: MemoryKafkaAdmin(self.kafka),
            driver=SimpleNamespace(producer=lambda *_: CommittingProducer(self.kafka), reader=self.open_reader),
        )  # fmt: skip
        self.readers = 0
        self.copier = OutCopier(COPY, self.open)

    def open_reader(self, connection, options):
        self.readers += 1
        return MemoryKafkaReader(self.kafka, ReaderOptions(records_max=7))

    def link(self):
        return AdminClient(self.engine.address, ADMIN_SECRET)

    def open(self):
        link = self.link()
        return EngineReads(TOPIC_NAME, [QueueLink(link, link.hello.log_id, [0], link.hello.epoch)])

    def send(self, *bodies):
        records = [encode_record(encode_struct(Message(topic=TOPIC_NAME, id=each, body=b"v"))) for each in bodies]
        with self.link() as link:
            assert link.call(TOPIC, encode_topics([(TOPIC_NAME, 1)]))[0] == OK
            batch = encode_batch(self.open().places()[0].topic_id, 0, records)
            assert link.call(APPEND, encode_append(FSYNC, batch))[0] == OK

    def turn(self):
        self.copier.take_turn(self.clients, lambda: True)
        return self.copier.fault

    def put_back_to(self, moment, between):
        """The engine's data as it is at this moment, after what comes between."""
        self.engine.end(signal.SIGTERM)
        shutil.copytree(self.engine.data, self.folder / moment)
        self.engine.start()
        between()
        self.engine.end(signal.SIGTERM)
        shutil.rmtree(self.engine.data)
        shutil.copytree(self.folder / moment, self.engine.data)
        self.engine.start()

    def ids(self):
        return [dict(each.headers)["penstock-id"].decode() for each in self.kafka.records(TOPIC_NAME)]


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path)
    yield made
    made.engine.end(signal.SIGKILL)


def names(tag, count):
    return [f"{tag}{number}" for number in range(count)]


@pytest.mark.parametrize("count", [5, 60, 90])
def test_it_stops_where_the_engine_has_other_messages_and_goes_on_by_an_operators_word(desk, count):
    desk.send(*names("a", 9))
    assert desk.turn() == ""

    def lost():
        desk.send(*names("b", 60))
        assert desk.turn() == ""

    desk.put_back_to("before", lost)
    desk.send(*names("c", count))
    for _ in range(2):
        assert "topic orders queue 0: from offset 9 on the engine has not the messages that were copied" in desk.turn()
    assert desk.ids() == names("a", 9) + names("b", 60)
    desk.kafka.committed[group_of(COPY)][PARTITION] = CommittedPosition(9, "")
    assert desk.turn() == ""
    assert desk.ids() == names("a", 9) + names("b", 60) + names("c", count)
    desk.engine.end(signal.SIGTERM)
    desk.engine.start()
    desk.send("d")
    assert desk.turn() == "" and desk.ids()[-1] == "d"


def test_kafka_is_asked_for_it_once_per_start_of_the_engine(desk):
    for tag in "abc":
        desk.send(tag)
        assert desk.turn() == ""
    assert desk.readers <= 2, "once for the position, and once the copy has one"
    desk.engine.end(signal.SIGTERM)
    desk.engine.start()
    before = desk.readers
    assert desk.turn() == "" and desk.readers == before + 1


def test_messages_that_retention_has_deleted_in_the_engine_are_no_loss(desk):
    desk.send(*names("a", 3))
    assert desk.turn() == ""
    place = EngineTopic(desk.link().hello.log_id, desk.open().places()[0].topic_id)
    end = MemoryKafkaAdmin(desk.kafka).offsets([PARTITION], STABLE_END)[PARTITION]
    reader = desk.open_reader(None, None)
    for found, fault in ((MessageAt(None, is_deleted=True), False), (MessageAt(None), True)):
        tails = CopiedTails(reader, lambda partition, offset, found=found: found, "group")
        assert bool(tails.faults({PARTITION: TailRange(place, 0, end)})) is fault
