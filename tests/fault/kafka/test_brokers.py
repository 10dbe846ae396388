"""A Kafka home of three brokers: what was answered OK is there, and a group reads it.

Under kills, restarts and freezes; under an orderly rolling restart; and while leaders and the coordinator are moved.
`PENSTOCK_KAFKA_ROUNDS=20` makes more rounds than the check's one, whose rolling restart is of one broker.
"""

import itertools
import json
import os
import re
import threading
from contextlib import closing

import pytest

from common.contract import Code, Message
from common.kafka.base import CommitOutcome, GroupListener, GroupOptions, NewKafkaTopic, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import installed, open_driver
from common.kafka.errors import KafkaFault
from common.kafka.records import Partition
from tests.e2e.kafka.home import Sender
from tests.e2e.running import RunningPenstock
from tests.services import require
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

ROUNDS = int(os.environ.get("PENSTOCK_KAFKA_ROUNDS", "1"))
BROKERS, PARTITIONS, SENDERS, SENT_AT_ONCE = 3, 6, 2, 10
SERVES_S_MAX, READ_S_MAX = 90.0, 120.0
OK_BETWEEN = 100
ALLOWED = {Code.OK, Code.TIMEOUT, Code.UNAVAILABLE, Code.OVERLOADED}
NOT_STORED = {Code.UNAVAILABLE, Code.OVERLOADED}
OFFSETS_PARTITIONS = 3
RESTARTED = range(1, BROKERS + 1) if "PENSTOCK_KAFKA_ROUNDS" in os.environ else (1,)
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


class Site:
    """Three brokers, a topic with three replicas of which two must have a record, and a Penstock whose home they are."""

    def __init__(self, folder) -> None:
        self.brokers = KafkaBrokers(folder / "kafka", nodes=BROKERS, is_shutdown_controlled=True).start()
        self.connection = KafkaConnection("main", (*self.brokers.bootstrap.split(","),), connect_timeout_s=30.0)
        with closing(open_driver().admin(self.connection)) as admin:
            settings = NewKafkaTopic(PARTITIONS, BROKERS, {"min.insync.replicas": "2"})
            assert admin.create_topics({"orders": settings}) == {}
            until(lambda: admin.topics(["orders"]), "the topic", 30.0)
        self.penstock = RunningPenstock(folder / "data")
        (folder / "data" / "config").mkdir(parents=True)
        self.penstock.run("kafka", "add", "main", "--bootstrap", self.brokers.bootstrap)
        self.penstock.run("topic", "create", "orders", "--home", "kafka:main")
        self.penstock.start()
        self.application = self.penstock.application("shop", send=["*"])

    def close(self) -> None:
        self.penstock.end()
        self.brokers.stop()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    require(installed(), "pip install confluent-kafka")
    made = Site(tmp_path_factory.mktemp("brokers"))
    yield made
    made.close()


class Flow(threading.Thread):
    """Sends numbered messages until it is stopped, and notes the code of each."""

    def __init__(self, site, name) -> None:
        super().__init__(daemon=True)
        self.codes: dict[str, int] = {}
        self._sender, self._name, self.stopping = Sender(site.penstock, site.application), name, threading.Event()
        self.start()

    def run(self) -> None:
        for number in itertools.count():
            if self.stopping.is_set():
                return
            names = [f"{self._name}-{number}-{at}" for at in range(SENT_AT_ONCE)]
            batch = [Message(topic="orders", id=name, key=name, body=name.encode()) for name in names]
            for name, result in zip(names, self._sender.send(*batch), strict=True):
                self.codes[name] = result.code
            if any(self.codes[name] != Code.OK for name in names):
                self.stopping.wait(0.02)  # a pace, not a wait for anything


class Member(threading.Thread):
    """A reader of a group that commits all it has read, and opens itself again after a fault."""

    def __init__(self, site) -> None:
        super().__init__(daemon=True)
        self._connection, self.stopping = site.connection, threading.Event()
        self.found: set[str] = set()
        self.outcomes: list[CommitOutcome] = []
        self.start()

    def run(self) -> None:
        options = GroupOptions("audit", ("orders",), session_s=10.0)
        while not self.stopping.is_set():
            try:
                with closing(open_driver().group_reader(self._connection, options, GroupListener())) as reader:
                    self._read(reader)
            except KafkaFault:
                continue

    def _read(self, reader) -> None:
        while not self.stopping.is_set():
            polled = reader.poll(0.2)
            self.found.update(value.decode() for each in polled for value in each.values)
            if polled:
                self.outcomes.append(reader.commit({each.partition: each.next_offset for each in polled}).outcome)


def stored(site, wanted):
    """All ids that a plain reader finds, once `wanted` are among them."""
    found: set[str] = set()
    with closing(open_driver().reader(site.connection, ReaderOptions())) as reader:
        reader.assign({Partition("orders", number): 0 for number in range(PARTITIONS)})

        def read():
            found.update(value.decode() for each in reader.poll(0.2) for value in each.values)
            return wanted <= found

        until(read, "what was answered OK", READ_S_MAX)
        while reader.poll(0.5):
            pass
    return found


class Work:
    """Flows and a member at work, and the check of what they have seen."""

    def __init__(self, site, name) -> None:
        self._site, self._name = site, name
        self._flows = [Flow(site, f"{name}{number}") for number in range(SENDERS)]
        self._member = Member(site)

    def wait_for_more(self) -> None:
        before = self._count_ok()
        until(lambda: self._count_ok() >= before + OK_BETWEEN, f"{OK_BETWEEN} more answers OK", SERVES_S_MAX)

    def _count_ok(self) -> int:
        return sum(code == Code.OK for flow in self._flows for code in list(flow.codes.values()))

    def stop(self) -> dict[str, int]:
        """End the flows and return the code of each message."""
        for flow in self._flows:
            flow.stopping.set()
        for flow in self._flows:
            flow.join(30)
        return {name: code for flow in self._flows for name, code in flow.codes.items()}

    def end(self) -> None:
        self.stop()
        self._member.stopping.set()
        self._member.join(60)

    def check(self) -> None:
        """What was answered OK is stored and read by the group; what was answered "not stored" is not there."""
        codes = self.stop()
        answered = {name for name, code in codes.items() if code == Code.OK}
        assert set(codes.values()) <= ALLOWED
        found = stored(self._site, answered)
        assert {name for name, code in codes.items() if code in NOT_STORED} & found == set()
        until(lambda: answered <= self._member.found, "the group reads what was answered OK", READ_S_MAX)
        assert self._member.outcomes.count(CommitOutcome.COMMITTED) > 0


@pytest.fixture
def work(site, request):
    made = Work(site, request.function.__name__.split("_")[1])
    made.wait_for_more()
    yield made
    made.end()


def test_kills_restarts_and_freezes_of_brokers_lose_nothing_that_was_answered_ok(site, work):
    for _ in range(ROUNDS):
        for broker in range(1, BROKERS + 1):
            site.brokers.kill(broker)
            work.wait_for_more()  # the others have taken over its partitions, and its groups
            site.brokers.restart(broker)
            work.wait_for_more()
        site.brokers.freeze(1)
        work.wait_for_more()
        site.brokers.thaw(1)
        work.wait_for_more()
    work.check()


def test_rolling_restarts_in_order_lose_nothing_that_was_answered_ok(site, work):
    for _ in range(ROUNDS):
        for broker in RESTARTED:
            site.brokers.shut_down(broker)
            work.wait_for_more()
            site.brokers.restart(broker)
            work.wait_for_more()
    work.check()


def test_moved_leaders_and_a_moved_coordinator_lose_nothing_that_was_answered_ok(site, work, tmp_path):
    for turn in range(ROUNDS):
        # Each partition has a next first replica: an election moves its leader there. The group's coordinator is the
        # leader of its partition of __consumer_offsets.
        for topic, count in (("orders", PARTITIONS), ("__consumer_offsets", OFFSETS_PARTITIONS)):
            before = leaders(site, topic)
            moved = {number: leader % BROKERS + 1 for number, leader in before.items()}
            assert len(before) == count
            plan = tmp_path / f"{topic}-{turn}.json"
            replicas = {
                number: [(first + at - 1) % BROKERS + 1 for at in range(BROKERS)] for number, first in moved.items()
            }
            plan.write_text(json.dumps({"version": 1, "partitions": [
                {"topic": topic, "partition": number, "replicas": each} for number, each in replicas.items()
            ]}))  # fmt: skip
            to = ("--bootstrap-server", site.brokers.bootstrap)
            site.brokers.tool(REASSIGN, *to, "--reassignment-json-file", str(plan), "--execute")
            site.brokers.tool(ELECT, *to, "--election-type", "preferred", "--path-to-json-file", str(plan))
            until(lambda: leaders(site, topic) == moved, f"the leaders of {topic} to be {moved}", SERVES_S_MAX)  # noqa: B023
            work.wait_for_more()
    work.check()


def leaders(site, topic) -> dict[int, int]:
    """The leader of each partition."""
    told = site.brokers.tool(TOPICS, "--bootstrap-server", site.brokers.bootstrap, "--describe", "--topic", topic)
    return {
        int(number): int(leader) for number, leader in re.findall(r"Partition: (\d+)\s+Leader: (\d+)", told.decode())
    }
