"""The queues of topics with two sides follow the partitions in Kafka, at a real engine."""

import pytest

from common.clock import SystemClock
from common.config import ConfigView
from common.config.definitions import TopicDefinition
from common.config.memory_store import MemoryConfigStore
from common.kafka.errors import ClusterUnreachable
from engine.client.admin import AdminClient
from engine.client.blocking import LeadingLink
from engine.link.proof import KAFKA_BRIDGE_ROLE
from kafka_bridge import dual_topics
from kafka_bridge.copy_in.copier import CopyTools
from kafka_bridge.dual_topics import DualTopics
from tests.e2e.test_engine_process import ADMIN_SECRET, KEY, EngineProcess
from tests.services.memory_kafka import MemoryKafka, MemoryKafkaDriver
from tests.waiting import until

SIDES = {
    "out": {"secondary": "kafka:main"},
    "in": {"home": "kafka:main", "secondary": "engine"},
    "single": {"home": "kafka:main"},
    "unknown": {"secondary": "kafka:main"},
}


class Desk:
    """A bridge that follows; `unknown` is no topic in Kafka."""

    def __init__(self, engine) -> None:
        self.engine, self.store = engine, MemoryConfigStore()
        self.kafka = MemoryKafka(out=2, single=2)
        self.kafka.create("in", 2)
        self.driver = MemoryKafkaDriver(self.kafka)
        self.store.put("kafka", "main", {"bootstrap": "k:9092"}, 0)
        for name, fields in SIDES.items():
            self.store.put("topic", name, TopicDefinition(name, queues=2, id_window_ms=0, **fields).to_value(), 0)
        groups = {"main": (engine.address,)}
        tools = CopyTools(self.store, SystemClock(), lambda: groups, self.connect, lambda cluster: self.driver)
        self.view = ConfigView(self.store)
        self.topics = DualTopics(self.view, tools)

    @staticmethod
    def connect(name, addresses):
        return LeadingLink(addresses, KEY, KAFKA_BRIDGE_ROLE)

    def queues(self):
        return {name: found.value["queues"] for name, found in self.store.entries("topic")}

    def engine_queues(self):
        with AdminClient(self.engine.address, ADMIN_SECRET) as link:
            return {each["name"]: each["queues"] for each in link.ask("topics")["topics"]}

    def close(self) -> None:
        self.topics.close()
        self.view.close()


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.setattr(dual_topics, "LOOK_S", 0.02)
    engine = EngineProcess(tmp_path / "engine")
    made = Desk(engine)
    yield made
    made.close()
    engine.process.kill()
    engine.process.wait(10)


def test_queues_follow_in_the_configuration_and_at_the_engine_whichever_side_is_the_home(desk):
    until(lambda: desk.engine_queues() == {"in": 2, "out": 2}, "the queues of now", 20.0)
    for name in ("in", "out", "single"):
        desk.kafka.partitions[name] += [[], []]
    until(lambda: desk.engine_queues() == {"in": 4, "out": 4}, "the queues at the engine", 20.0)
    assert desk.queues() == {"in": 4, "out": 4, "single": 2, "unknown": 2}, "a copier serves the topic of one side"
    assert desk.topics.health() == {"queues of dual writes": True}


def test_a_cluster_that_is_away_is_a_note_and_is_followed_when_it_is_back(desk):
    until(lambda: desk.engine_queues() == {"in": 2, "out": 2}, "the queues of now", 20.0)
    desk.kafka.fault = ClusterUnreachable('kafka "main": no broker answers')
    desk.store.put("kafka", "main", {"bootstrap": "k:9093"}, desk.store.get("kafka", "main").version)
    until(lambda: "no broker answers" in str(desk.topics.health()), "the note", 20.0)
    desk.kafka.partitions["in"].append([])
    desk.kafka.fault = None
    until(lambda: desk.queues()["in"] == 3 and not desk.topics.fault, "the queue", 20.0)
