"""The bridge as a member of a group, with both drivers: a real broker, a real engine, and the group's pulls there."""

import signal
import uuid
from collections import Counter

import pytest

from common.clock import SystemClock
from common.config.memory_store import MemoryConfigStore
from common.config.view import ConfigView
from common.kafka.records import Partition
from common.shared_reads import hidden_topic
from engine.client.admin import AdminClient
from engine.client.blocking import LeadingLink
from engine.link.acknowledgement import DONE, AckRange
from engine.link.operations import PULL
from engine.link.proof import KAFKA_BRIDGE_ROLE
from engine.link.pull import decode_answer, encode_pull
from kafka_bridge.copy_in.copier import CopyTools
from kafka_bridge.shared_read.copies import all_copies
from kafka_bridge.shared_read.read_ahead import MESSAGES_MAX
from tests.contract.kafka.exchange import NOW
from tests.e2e.test_engine_process import ADMIN_SECRET, KEY, EngineProcess
from tests.unit.kafka_bridge.copy_in.test_copier import bodies_of
from tests.waiting import until

WAIT_S = 60.0


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    made = EngineProcess(tmp_path_factory.mktemp("shared") / "engine")
    yield made
    made.end(signal.SIGKILL)


class SharedDesk:
    """A topic in Kafka, a group that reads it on both sides, and bridges' copies by one configuration."""

    def __init__(self, exchange, engine, topic, partitions, order) -> None:
        self.exchange, self.engine, self.topic, self.partitions = exchange, engine, topic, partitions
        self.group = f"g-{uuid.uuid4().hex[:12]}"
        self.hidden = hidden_topic(self.group, topic)
        self.store, self.admin, self.bridges = MemoryConfigStore(), exchange.admin(), []
        self.link = AdminClient(engine.address, ADMIN_SECRET)
        self.store.put("kafka", "main", {"bootstrap": exchange.connection.bootstrap[0]}, 0)
        self.store.put("topic", topic, {"queues": partitions, "home": "kafka:main", "id_window_ms": 0}, 0)
        self.store.put("group", self.group, {"order": order}, 0)
        self.store.put("shared_read", self.hidden, {"group": self.group, "topic": topic, "cluster": "main"}, 0)

    def bridge(self):
        """One more bridge."""
        tools = CopyTools(
            self.store, SystemClock(), lambda: {"main": (self.engine.address,)},
            lambda name, addresses: LeadingLink(addresses, KEY, KAFKA_BRIDGE_ROLE), lambda cluster: self.exchange.driver,
        )  # fmt: skip
        self.bridges.append(all_copies(ConfigView(self.store), tools))
        return self.bridges[-1]

    def tallies(self, bridge):
        return bridge.all[0].tallies if bridge.all else None

    def wait_partitions(self, *wanted):
        """Wait until the bridges have so many partitions, each its own number."""
        found = lambda: [tallies.partitions if (tallies := self.tallies(each)) else -1 for each in self.bridges]  # noqa: E731
        until(lambda: sorted(found()) == sorted(wanted), f"partitions {wanted}", WAIT_S)

    def fill(self, count, first=0):
        rows = [(number % self.partitions, NOW, b"k", b"%d" % number) for number in range(first, first + count)]
        assert self.exchange.send(self.topic, *rows).all_stored

    def stored(self) -> list[bytes]:
        """Bodies of all that the hidden topic has."""
        rows = {each["name"] for each in self.link.ask("topics", limit=1000)["topics"]}
        if self.hidden not in rows:
            return []
        return [body for queue in range(self.partitions) for body in bodies_of(self.link, self.hidden, queue)]

    def wait_stored(self, count):
        until(lambda: len(self.stored()) >= count, f"{count} messages", WAIT_S)

    def committed(self) -> int:
        return sum(self.admin.group_offsets(self.group).values())

    def pull(self, count=1000):
        """Lease what is there; returns the pieces."""
        topics = [(self.hidden, self.partitions)]
        _, payload = self.link.call(PULL, encode_pull(self.group, topics, max_messages=count, invisible_ms=60_000))
        return decode_answer(payload)[1]

    def acknowledge(self, pieces):
        acks = [AckRange(each.token, each.first_delta, each.count, DONE) for each in pieces]
        code, _ = self.link.call(PULL, encode_pull(self.group, max_messages=0, acks=acks))
        assert code == 0

    def close(self):
        for each in self.bridges:
            each.close(10)
        self.link.close()


@pytest.fixture
def desk(exchange, engine, new_topic):
    made = []

    def make(partitions=2, order="none"):
        made.append(SharedDesk(exchange, engine, new_topic(partitions), partitions, order))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_what_the_group_gives_is_stored_once_then_committed_and_the_next_member_goes_on(desk):
    of = desk()
    of.fill(40)
    first = of.bridge()
    of.wait_stored(40)
    until(lambda: of.committed() == 40, "the commits", WAIT_S)
    assert of.store.get("shared_read", of.hidden).value["queues"] == 2
    first.close(10)
    of.fill(20, first=40)
    of.bridge()
    of.wait_stored(60)
    assert Counter(of.stored()) == Counter(b"%d" % number for number in range(60))


def test_after_a_lost_commit_what_the_engine_has_is_not_stored_again(desk):
    of = desk()
    of.fill(40)
    first = of.bridge()
    of.wait_stored(40)
    until(lambda: of.committed() == 40, "the commits", WAIT_S)
    first.close(10)
    positions = {Partition(of.topic, number): 5 for number in range(2)}
    until(lambda: of.admin.groups().get(of.group) != "Stable", "a group without members", WAIT_S)
    of.admin.set_group_offsets(of.group, positions)
    of.fill(20, first=40)
    of.bridges.clear()
    second = of.bridge()
    of.wait_stored(60)
    until(lambda: of.committed() == 60, "the commits", WAIT_S)
    assert Counter(of.stored()) == Counter(b"%d" % number for number in range(60))
    second.close(10)
    assert of.tallies(second).repeated == 30


def test_no_more_is_read_than_the_group_may_leave_unacknowledged(desk):
    of = desk(partitions=1)
    of.fill(MESSAGES_MAX + 500)
    of.bridge()
    of.wait_stored(MESSAGES_MAX)
    until(lambda: of.committed() == MESSAGES_MAX, "the commits", WAIT_S)  # they follow what is stored
    pieces = of.pull(100)
    leased = sum(each.count for each in pieces)
    for _ in range(3):
        assert len(of.stored()) == MESSAGES_MAX and of.committed() == MESSAGES_MAX
    of.acknowledge(pieces)
    while len(of.stored()) < MESSAGES_MAX + 500:
        assert len(of.stored()) <= MESSAGES_MAX + leased
        pieces = of.pull()
        of.acknowledge(pieces)
        leased += sum(each.count for each in pieces)
    assert of.stored() == [b"%d" % number for number in range(MESSAGES_MAX + 500)]


def test_a_group_with_an_order_gives_a_partition_up_when_its_messages_are_acknowledged(desk):
    of = desk(order="key")
    of.fill(40)
    first = of.bridge()
    of.wait_stored(40)
    pieces = []
    until(lambda: pieces.extend(of.pull()) or sum(each.count for each in pieces) >= 2, "a lease of each queue", WAIT_S)
    second = of.bridge()
    until(lambda: of.tallies(second) is not None, "the second bridge", WAIT_S)
    until(lambda: of.tallies(first).partitions == 0, "the revoke", WAIT_S)
    assert of.tallies(second).partitions == 0, "it waits for the first one"
    done = 0
    while done < 40:
        of.acknowledge(pieces)
        done += sum(each.count for each in pieces)
        pieces = of.pull()
    of.wait_partitions(1, 1)
    assert [of.tallies(each).order_broken for each in (first, second)] == [0, 0]
    of.fill(20, first=40)
    of.wait_stored(60)
    assert Counter(of.stored()) == Counter(b"%d" % number for number in range(60))
