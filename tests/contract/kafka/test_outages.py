"""Both drivers over brokers that die, hang and come back: three nodes, of which one or all are lost.

One outage serves both drivers, since a start of brokers costs seconds.
"""

import os
import socket
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from common.contract import Code
from common.kafka.base import NewKafkaTopic
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import DRIVERS, installed, open_driver
from common.kafka.errors import ClusterUnreachable, TransactionAborted
from common.kafka.records import Partition
from tests.contract.kafka.exchange import NOW, Exchange, Sent, outgoing, records_of, rows_of
from tests.services import require
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

TIMEOUT, UNAVAILABLE = int(Code.TIMEOUT), int(Code.UNAVAILABLE)
PATIENT = {"delivery_timeout_s": 90.0, "request_timeout_s": 5.0}
PARTITIONS = range(6)
COMMITTED_S_MAX = 35.0
"""Below what a producer waits for a coordinator at most: none is to hang up to there."""


@pytest.fixture(scope="module")
def trio():
    require(set(installed()) == set(DRIVERS), f"pip install {' '.join(DRIVERS)}")
    folder = tempfile.TemporaryDirectory(prefix="penstock-kafka-3-", ignore_cleanup_errors=True)
    with folder as name, KafkaBrokers(Path(name), nodes=3) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def connection(trio):
    return KafkaConnection("trio", tuple(trio.bootstrap.split(",")), connect_timeout_s=30.0)


class Side:
    """One driver with its own topic, on all nodes."""

    def __init__(self, exchange, name, **configs):
        self.exchange, self.topic = exchange, f"{name}-{exchange.driver.name}"
        admin = exchange.admin()
        settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
        assert admin.create_topics({self.topic: NewKafkaTopic(len(PARTITIONS), 3, settings)}) == {}
        until(lambda: admin.topics([self.topic]), "the topic", 30.0)

    def producer(self, **options):
        made = self.exchange.producer(**options)
        until(lambda: self.send(made, b"first").results().all_stored, "leaders of all partitions", 60.0)
        return made

    def reader(self):
        """At the end of the topic."""
        partitions = [Partition(self.topic, number) for number in PARTITIONS]
        return self.exchange.reader(self.exchange.admin().offsets(partitions, -1))

    def send(self, producer, value):
        """One record to each partition, so that every node leads some of them."""
        sent = Sent()
        producer.produce(outgoing(self.topic, *[(number, NOW, b"k", value) for number in PARTITIONS]), sent)
        return sent


@pytest.fixture
def sides(trio, connection):
    opened = [Exchange(open_driver(name), connection) for name in DRIVERS]
    yield lambda name, **configs: [Side(each, name, **configs) for each in opened]
    for each in opened:
        each.__exit__()


def test_a_lost_node_costs_nothing_unless_a_topic_asks_for_all_copies(sides, trio):
    plain, strict = sides("moves", min_insync_replicas=2), sides("all-copies", min_insync_replicas=3)
    producers = [side.producer(**PATIENT) for side in plain]
    hasty = [side.producer(delivery_timeout_s=5.0, request_timeout_s=3.0) for side in strict]
    readers = [side.reader() for side in plain]
    trio.kill(2)
    try:
        for sent in [side.send(producer, b"without") for side, producer in zip(plain, producers, strict=True)]:
            assert sent.results().all_stored
        for reader in readers:
            assert [row[3] for row in records_of(reader, 6)] == [b"without"] * 6
        # acks=all makes the leaders refuse. The libraries try again until the time is over, so it is a TIMEOUT.
        for side, producer in zip(strict, hasty, strict=True):
            until(lambda s=side, p=producer: set(s.send(p, b"short").results().codes) == {TIMEOUT}, "refusals", 60.0)
    finally:
        trio.restart(2)
    for sent in [side.send(producer, b"again") for side, producer in zip(plain, producers, strict=True)]:
        assert sent.results().all_stored
    for reader in readers:
        assert [row[3] for row in records_of(reader, 6)] == [b"again"] * 6
    for side, producer in zip(strict, hasty, strict=True):
        until(lambda s=side, p=producer: s.send(p, b"whole").results().all_stored, "all copies", 60.0)
        assert producer.fatal_fault == ""


def test_what_hanging_nodes_do_not_confirm_is_a_timeout_also_when_the_producer_is_closed(sides, trio):
    there = sides("hangs")
    producers = [side.producer(delivery_timeout_s=3.0, request_timeout_s=2.0) for side in there]
    closing = [side.producer(**PATIENT) for side in there]
    for number in (1, 2, 3):
        trio.freeze(number)
    try:
        during = [side.send(producer, b"during") for side, producer in zip(there, producers, strict=True)]
        last = [side.send(producer, b"closing") for side, producer in zip(there, closing, strict=True)]
        for producer in closing:
            producer.close(1.0)
        work = [settled(producer, sent) for producer, sent in zip(producers, during, strict=True)]
        for sent in during + last:
            assert set(sent.results().codes) <= {TIMEOUT, UNAVAILABLE} and TIMEOUT in sent.results().codes
    finally:
        for number in (1, 2, 3):
            trio.thaw(number)
    for side, producer, works in zip(there, producers, work, strict=True):
        owner = producer if works else side.producer()
        until(lambda s=side, p=owner: s.send(p, b"after").results().all_stored, "stored", 60.0)
        assert owner.fatal_fault == ""


def settled(producer, sent):
    """Wait for results as a producer's owner does; whether the producer still works, or had to be closed for them."""
    until(lambda: sent.is_done or producer.fatal_fault, "results or a fault", 60.0)
    works = not producer.fatal_fault
    if not works:
        producer.close(1.0)
    return works


def test_a_cluster_that_is_away_and_comes_back_stores_what_waited_once_and_in_order(sides, trio, connection):
    there = sides("back")
    producers = [side.producer(**PATIENT) for side in there]
    readers = [side.reader() for side in there]
    for side, producer, reader in zip(there, producers, readers, strict=True):
        assert side.send(producer, b"calm").results().all_stored and len(records_of(reader, 6)) == 6
    before = [reader.interruptions for reader in readers]
    trio.stop()
    for side in there:
        with pytest.raises(ClusterUnreachable):
            side.exchange.driver.admin(replace(connection, connect_timeout_s=1.0))
    waiting = []
    for side, producer in zip(there, producers, strict=True):
        for number in range(20):
            waiting.append(Sent())
            rows = [(0, NOW, b"k", b"%d" % (number * 5 + each)) for each in range(5)]
            producer.produce(outgoing(side.topic, *rows), waiting[-1])
    assert not any(sent.is_done for sent in waiting)
    trio.start()
    assert all(sent.results().all_stored for sent in waiting)
    for reader, ended in zip(readers, before, strict=True):
        first = until(
            lambda reader=reader: [row for each in reader.poll(0.5) for row in rows_of(each)], "a record", 60.0
        )
        assert reader.interruptions > ended, "told before anything comes over another connection"
        rest = records_of(reader, 100 - len(first)) if len(first) < 100 else []
        assert [row[3] for row in first + rest] == [b"%d" % each for each in range(100)]
        assert [row for records in reader.poll(0.5) for row in rows_of(records)] == []


def end_connections(port):
    """End the connections of this process to this port, whose broker serves on; returns whether there were any."""
    ended = False
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if os.readlink(each).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(each.name))) as copy:
                    if copy.family == socket.AF_INET and copy.getpeername()[1] == port:
                        copy.shutdown(socket.SHUT_RDWR)
                        ended = True
    return ended


def test_the_end_of_a_connection_is_told_also_where_the_broker_serves_on_and_others_are_left(sides, trio):
    there = sides("ended")
    producers, readers = [side.producer(**PATIENT) for side in there], [side.reader() for side in there]
    for port in trio.ports:
        for side, producer, reader in zip(there, producers, readers, strict=True):
            assert side.send(producer, b"before").results().all_stored and len(records_of(reader, 6)) == 6
            before = reader.interruptions
            assert end_connections(port)
            assert side.send(producer, b"after").results().all_stored and len(records_of(reader, 6)) == 6
            assert reader.interruptions > before


class Transactions:
    """Numbered transactions of one producer with positions of a group; another producer takes over from one that fails."""

    def __init__(self, side) -> None:
        self.side, self.done, self.producer = side, 0, None

    def commit(self) -> bool:
        """Whether the next one is committed."""
        try:
            if self.producer is None:
                self.producer = self.side.exchange.producer(transactional_id=f"tx-{self.side.topic}")
                self.producer.partitions(self.side.topic)
            self.producer.begin()
            self.side.send(self.producer, b"%d" % self.done)
            self.producer.commit({Partition(self.side.topic, 0): self.done + 1}, f"group-{self.side.topic}")
        except (TransactionAborted, ClusterUnreachable):
            if self.producer is not None:
                self.producer.close(0.1)
            self.producer = None
            return False
        self.done += 1
        return True


def test_transactions_with_positions_go_on_in_time_after_all_nodes_were_restarted(sides, trio):
    there = [Transactions(side) for side in sides("committed")]
    for each in there:
        until(each.commit, "a first transaction", 60.0)
    for number in (1, 2, 3):
        trio.shut_down(number)
        trio.restart(number)
    for each in there:
        until(each.commit, f"a transaction of {each.side.exchange.driver.name}", COMMITTED_S_MAX)
        reader = each.side.exchange.reader(dict.fromkeys((Partition(each.side.topic, n) for n in PARTITIONS), 0))
        wanted = [b"%d" % number for number in range(each.done) for _ in PARTITIONS]
        assert sorted(row[3] for row in records_of(reader, len(wanted))) == wanted
