"""Many topics of one cluster: what they share, and what a topic that fails costs the others. A real engine, Kafka in memory."""

import signal
import threading

import pytest

from common.kafka.errors import KafkaRefusal
from tests.e2e.test_engine_process import EngineProcess
from tests.unit.kafka_bridge.copy_in.test_copier import CopyDesk, bodies_of
from tests.waiting import until

TOPICS = 30
AUTHORIZATION_FAILED = 29


class ManyTopics(CopyDesk):
    """As a CopyDesk, with more topics of the same cluster."""

    def __init__(self, engine, name: str) -> None:
        super().__init__(engine, f"{name}-0", {"home": "kafka:main"}, partitions=1)
        self.topics = [f"{name}-{number}" for number in range(TOPICS)]
        for each in self.topics[1:]:
            self.kafka.create(each, 1)
            self.put(each, {"home": "kafka:main"})

    def put(self, topic, settings) -> None:
        self.store.put("topic", topic, {"queues": 1, "durability": "memory", "id_window_ms": 0, **settings}, 0)

    def wait_each(self, topics, bodies) -> None:
        def are_there():
            with self.link() as link:
                known = {each["name"] for each in link.ask("topics")["topics"]}
                return all(each in known and bodies_of(link, each, 0) == bodies for each in topics)

        until(are_there, f"{bodies} in {len(topics)} topics", 30.0)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    made = EngineProcess(tmp_path_factory.mktemp("cluster") / "engine")
    yield made
    made.end(signal.SIGKILL)


@pytest.fixture
def desk(engine, request):
    made = ManyTopics(engine, f"t{abs(hash(request.node.name)) % 10**9}")
    yield made
    made.close()


def test_topics_of_a_cluster_share_a_thread_and_clients_whatever_their_number(desk):
    for each in desk.topics:
        desk.kafka.add(each, 0, b"one")
    before = threading.active_count()
    bridge = desk.bridge()
    desk.wait_each(desk.topics, [b"one"])
    assert threading.active_count() - before == 3, "of the configuration, one that follows it, and one that copies"
    assert desk.kafka.clients == {"admin": 1, "reader": 1}
    asked = desk.kafka.asked_topics
    until(lambda: desk.kafka.asked_topics >= asked + 2, "Kafka to be asked again", 20.0)
    assert desk.kafka.topics_per_question == TOPICS, "one question for all topics"
    assert sum(each.stored for each in bridge.all) == TOPICS and all(each.is_claimed for each in bridge.all)


@pytest.mark.parametrize("what", ["missing", "forbidden", "too large", "position"])
def test_a_topic_that_fails_stands_still_alone_and_goes_on_once_it_can(desk, what):
    failing, others = desk.topics[7], [each for each in desk.topics if each != desk.topics[7]]
    for each in desk.topics:
        desk.kafka.add(each, 0, b"one")
    if what == "missing":
        desk.kafka.partitions.pop(failing)
    bridge = desk.bridge()
    desk.wait_each(others if what == "missing" else desk.topics, [b"one"])
    if what == "forbidden":
        refusal = KafkaRefusal(AUTHORIZATION_FAILED, f"{failing}: TOPIC_AUTHORIZATION_FAILED", failing)
        desk.kafka.refused_reads[failing] = refusal
    elif what == "too large":
        desk.kafka.add(failing, 0, bytes(64 << 20))
    elif what == "position":
        desk.kafka.create(failing, 1)
    for each in others:
        desk.kafka.add(each, 0, b"two")
    desk.wait_each(others, [b"one", b"two"])

    def standing():
        return [each.plan.topic for each in bridge.all if each.standstills]

    until(lambda: standing() == [failing], "the standstill of the topic alone", 20.0)
    if what == "missing":
        desk.kafka.create(failing, 1)
        desk.kafka.add(failing, 0, b"one")
        desk.wait_each([failing], [b"one"])
    elif what == "forbidden":
        desk.kafka.add(failing, 0, b"two")
        desk.kafka.refused_reads.clear()
        desk.wait_each([failing], [b"one", b"two"])
    if what in ("missing", "forbidden"):
        until(lambda: standing() == [], "no standstill", 20.0)


def test_a_topic_of_kafka_may_be_copied_into_several_topics(desk):
    second = f"{desk.topic}-again"
    desk.put(second, {})
    desk.store.put("copy_in", second, {"cluster": "main", "kafka_topic": desk.topic}, 0)
    desk.kafka.add(desk.topic, 0, b"one", b"two")
    desk.bridge()
    desk.wait_each([desk.topic, second], [b"one", b"two"])


def test_topics_come_and_go_without_a_pause_of_the_others(desk):
    bridge = desk.bridge()
    desk.kafka.add(desk.topic, 0, b"one")
    desk.wait_each([desk.topic], [b"one"])
    gone, added = desk.topics[3], f"{desk.topic}-later"
    entry = desk.store.get("topic", gone)
    desk.store.put("topic", gone, {**entry.value, "home": "engine"}, entry.version)
    desk.kafka.create(added, 1)
    desk.kafka.add(added, 0, b"one")
    desk.put(added, {"home": "kafka:main"})
    desk.wait_each([added], [b"one"])
    until(lambda: gone not in {each.plan.topic for each in bridge.all}, "the end of a copy", 20.0)
    desk.kafka.add(desk.topic, 0, b"two")
    desk.wait_each([desk.topic], [b"one", b"two"])
    assert desk.kafka.clients == {"admin": 1, "reader": 1}, "the clients are those of the beginning"
