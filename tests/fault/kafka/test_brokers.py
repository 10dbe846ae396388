"""A Kafka home of three brokers under kills, restarts and freezes: what was answered OK is there, and a group reads it.

`PENSTOCK_KAFKA_ROUNDS=20` makes more rounds than the check's one.
"""

import itertools
import os
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


class Site:
    """Three brokers, a topic with three replicas of which two must have a record, and a Penstock whose home they are."""

    def __init__(self, folder) -> None:
        self.brokers = KafkaBrokers(folder / "kafka", nodes=BROKERS).start()
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


def test_kills_restarts_and_freezes_of_brokers_lose_nothing_that_was_answered_ok(site):
    flows, member = [Flow(site, f"f{number}") for number in range(SENDERS)], Member(site)

    def count_ok():
        return sum(code == Code.OK for flow in flows for code in list(flow.codes.values()))

    def wait_for_more():
        before = count_ok()
        until(lambda: count_ok() >= before + OK_BETWEEN, f"{OK_BETWEEN} more answers OK", SERVES_S_MAX)

    try:
        wait_for_more()
        for _ in range(ROUNDS):
            for broker in range(1, BROKERS + 1):
                site.brokers.kill(broker)
                wait_for_more()  # the others have taken over its partitions, and its groups
                site.brokers.restart(broker)
                wait_for_more()
            site.brokers.freeze(1)
            wait_for_more()
            site.brokers.thaw(1)
            wait_for_more()
    finally:
        for flow in flows:
            flow.stopping.set()
        for flow in flows:
            flow.join(30)
    codes = {name: code for flow in flows for name, code in flow.codes.items()}
    answered = {name for name, code in codes.items() if code == Code.OK}
    assert set(codes.values()) <= ALLOWED
    found = stored(site, answered)
    assert {name for name, code in codes.items() if code in NOT_STORED} & found == set()
    until(lambda: answered <= member.found, "the group reads what was answered OK", READ_S_MAX)
    member.stopping.set()
    member.join(60)
    assert member.outcomes.count(CommitOutcome.COMMITTED) > 0
