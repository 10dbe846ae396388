"""Walks docs/design/0046-outside-changes.md: leaders move, and the disk is full, beneath topics in states between the steps of
plans, while all of them are written.
"""

import threading
from collections import Counter
from contextlib import ExitStack, closing

import pytest

from common.contract import Code
from common.kafka.base import ProducerOptions
from common.kafka.drivers import open_driver
from common.kafka.errors import KafkaFault
from common.kafka.records import OutgoingRecords
from tests.fault.kafka.every_state import BACK, DUAL, FROM_KAFKA, GROUP, MIRROR, READ_BOTH, SWAPPED, EveryState, topic
from tests.fault.kafka.moving import Member
from tests.fault.kafka.test_full_disk import BODY_BYTES, DISK, FULL_S_MAX, LEFT_BYTES, fill
from tests.fault.kafka.test_outages import Load
from tests.fault.kafka.test_shapes_and_positions import FOLLOWED_S_MAX
from tests.services.small_disk import mounted
from tests.waiting import until

pytestmark = pytest.mark.slow  # test_brokers.py and test_full_disk.py are its short form
BROKERS, TURNS = 3, 3
OK_BETWEEN = 20
INTERNAL = ("__consumer_offsets", "__transaction_state")
PREFERRED = 0
MOVED_S_MAX = 60.0


class WriterBeside(Load):
    """Writes to Kafka itself, as a writer beside the proxies does; each record once."""

    _producer = None

    def _sent(self, name, key):
        codes, is_done = [], threading.Event()
        row = (
            [self._topic],
            [0],
            [1],
            [key.encode()],
            [name.encode() + self._padding],
            [[("penstock-id", name.encode())]],
        )
        try:
            if self._producer is None:
                self._producer = open_driver().producer(self._both.connection, ProducerOptions(delivery_timeout_s=10.0))
                self._producer.partitions(self._topic)
            self._producer.produce(
                OutgoingRecords(*row), lambda results: (codes.extend(results.codes), is_done.set())
            )  # fmt: skip
            is_done.wait(30)
        except KafkaFault:
            pass
        if codes != [Code.OK]:
            self.close()
        return Code.OK if codes == [Code.OK] else Code.UNAVAILABLE  # it may be there, and is not sent again

    def close(self):
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(1)


class Flow:
    """Writers of topics in these states, and a member of the group that reads both sides."""

    def __init__(self, walk, change, states, padding=0):
        self._walk, self._topics = walk, {each: topic(each, change) for each in states}
        self._before = len(walk.kafka_order(self._topics[READ_BOTH]))
        self._member = Member(walk, self._topics[READ_BOTH], GROUP)
        self.loads = {
            each: (WriterBeside if each in FROM_KAFKA else Load)(walk, name, padding=padding)
            for each, name in self._topics.items()
        }

    def wait_for_more(self):
        for each in self.loads.values():
            each.wait_for(Code.OK, OK_BETWEEN)

    def check(self):
        """What was answered OK is on both sides once, of copies in one order; the group has got it once, by key in order."""
        self.stop()
        for state, name in self._topics.items():
            until(lambda state=state, name=name: self._is_even(state, name), f"equal sides of {name}", FOLLOWED_S_MAX)
            kafka, load = self._walk.kafka_order(name), self.loads[state]
            assert {each for each, code in load.codes.items() if code == Code.OK} <= {*kafka}
            assert [each for each, times in Counter(kafka).items() if times > 1 and each not in load.again] == []
        wanted = self._walk.kafka_order(self._topics[READ_BOTH])[self._before :]
        got = [each.rstrip("\0") for each in self._member.found]
        assert Counter(got) == Counter(wanted) and by_key(got) == by_key(wanted)

    def _is_even(self, state, name):
        kafka = self._walk.kafka_order(name)
        if state == READ_BOTH:
            return len(self._member.found) >= len(kafka) - self._before
        engine = self._walk.engine_order(name)
        return engine == kafka if state in (MIRROR, BACK) else sorted(engine) == sorted(kafka)

    def stop(self):
        for each in self.loads.values():
            each.stop()

    def close(self):
        self.stop()
        self._member.stop()


def by_key(names):
    """Messages by key, in order."""
    return [[each for each in names if int(each[1:]) % 5 == key] for key in range(5)]


class LeaderHand:
    """Moves replicas and leaders, as an operator's tools do."""

    def __init__(self, walk):
        from kafka import KafkaAdminClient

        self._client = KafkaAdminClient(bootstrap_servers=walk.brokers.bootstrap.split(","))
        self.close = self._client.close

    def move(self, topics):
        """Give each partition to the next brokers, of which the first one leads."""
        moved = {place: [each % BROKERS + 1 for each in at["replica_nodes"]] for place, at in self._places(topics)}
        assert {*self._client.alter_partition_reassignments(moved).values()} == {None}
        until(lambda: not self._client.list_partition_reassignments(), "the replicas are moved", MOVED_S_MAX)
        self._client.elect_leaders(PREFERRED, raise_errors=False)
        until(
            lambda: all(at["leader_id"] == moved[place][0] for place, at in self._places(topics)),
            "the first replicas lead", MOVED_S_MAX,
        )  # fmt: skip

    def _places(self, topics):
        from kafka import TopicPartition

        for each in self._client.describe_topics(topics):
            for at in each["partitions"]:
                yield TopicPartition(each["name"], at["partition_index"]), at


@pytest.fixture
def made():
    with ExitStack() as stack:
        yield stack.enter_context


def test_leaders_that_move_are_followed_by_every_copy_and_double_write(made, tmp_path):
    topics = {each: topic(each, "led") for each in (MIRROR, BACK, READ_BOTH, DUAL, SWAPPED)}
    walk = made(closing(EveryState(tmp_path, nodes=BROKERS))).reach([(each, "led") for each in topics])
    hand, flow = made(closing(LeaderHand(walk))), made(closing(Flow(walk, "led", topics)))
    for _ in range(TURNS):
        flow.wait_for_more()
        hand.move([*topics.values(), *INTERNAL])
    flow.wait_for_more()
    flow.check()


def test_a_full_disk_of_kafka_is_told_by_every_copy_and_followed_once_it_has_room_again(made, tmp_path):
    topics = {each: topic(each, "full") for each in (MIRROR, BACK, READ_BOTH)}
    disk = made(mounted(tmp_path / "disk", DISK))
    walk = made(closing(EveryState(tmp_path, data=disk))).reach([(each, "full") for each in topics])
    flow = made(closing(Flow(walk, "full", topics, padding=BODY_BYTES)))
    flow.wait_for_more()
    filler = fill(disk, LEFT_BYTES)
    until(lambda: not walk.brokers.nodes[0].is_running, "the broker ends, as its only directory has failed", FULL_S_MAX)
    walk.is_told(*topics.values())
    flow.loads[BACK].wait_for(Code.OK, OK_BETWEEN)
    filler.unlink()
    walk.brokers.restart(1)
    flow.wait_for_more()
    flow.check()
    assert {*flow.loads[BACK].codes.values()} == {Code.OK}, "the copy is none of the callers' business"
    until(lambda: not any(each in walk.notes() for each in topics.values()), "no note is left", FOLLOWED_S_MAX)
