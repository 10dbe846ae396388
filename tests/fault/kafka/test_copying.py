"""`kill -9` of the bridge and of the engine in turn while a topic of Kafka is copied: each record once, and in order."""

import itertools
import os
import signal
import threading
from pathlib import Path

import pytest

from common.contract import Code
from common.kafka.base import ProducerOptions
from common.kafka.drivers import installed, open_driver
from common.kafka.records import OutgoingRecords
from engine.client import copied
from engine.client.admin import AdminClient, AdminError
from engine.link.errors import LinkError
from engine.link.operations import READ
from engine.link.read import ReadAnswer, ReadPosition, ReadQuestion
from engine.link.record import read_record
from tests.e2e.kafka.home import PARTITIONS, Home
from tests.services import require
from tests.waiting import until

KILLS = int(os.environ.get("PENSTOCK_KILLS", "4"))
RECORDS_BETWEEN_KILLS = 500
BATCH, PACE_S, COPIED_S_MAX = 50, 0.02, 60.0
TOPIC = "killed"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    require(installed(), "a Kafka client")
    made = Home(tmp_path_factory.mktemp("copying"), "auto", [TOPIC])
    made.create(TOPIC)
    yield made.start()
    made.close()


class Flood:
    """Writes numbered records to each partition until it is stopped, a transaction per batch."""

    def __init__(self, home) -> None:
        self._home, self._stopping = home, threading.Event()
        self.written, self.codes = [0] * PARTITIONS, set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        producer = open_driver().producer(self._home.connection, ProducerOptions(transactional_id="flood"))
        producer.partitions(TOPIC)
        for turn in itertools.count():
            if self._stopping.wait(PACE_S):
                break
            partition = turn % PARTITIONS
            producer.begin()
            self._produce(producer, partition)
            assert producer.flush(30)
            producer.commit({}, "")
        producer.close(10)

    def _produce(self, producer, partition) -> None:
        first = self.written[partition]
        values = [b"%d" % number for number in range(first, first + BATCH)]
        records = OutgoingRecords([TOPIC] * BATCH, [partition] * BATCH, [5] * BATCH, values, values, [()] * BATCH)
        producer.produce(records, lambda results: self.codes.update(results.codes))
        self.written[partition] += BATCH

    def stop(self) -> list[int]:
        """End it; returns how many records each partition has."""
        self._stopping.set()
        self._thread.join(30)
        assert not self._thread.is_alive() and self.codes == {Code.OK}
        return self.written


def link(home) -> AdminClient:
    return AdminClient(home.penstock.engine, Path(home.penstock.facts["admin_key"]).read_bytes())


def ends(home) -> list[int]:
    """Messages per queue; none while the engine is away."""
    try:
        with link(home) as engine:
            return [state.end for state in copied.states(engine, [(TOPIC, queue) for queue in range(PARTITIONS)])]
    except (OSError, LinkError, AdminError):
        return [0] * PARTITIONS


def keys(engine, queue, count):
    """Of the queue's messages, in order, each with its offset in Kafka."""
    found = []
    while len(found) < count:
        code, payload = engine.call(
            READ, ReadQuestion([ReadPosition(TOPIC, queue, offset=len(found))], 1000, 1 << 20).encode()
        )
        assert code == Code.OK, payload
        before = len(found)
        for piece in ReadAnswer.decode(payload).pieces():
            at = 0
            while at < len(piece.records):
                record, at = read_record(piece.records, at)
                found.append((body_of(record.message), record.source_offset))
        assert len(found) > before, f"queue {queue} has {before} messages of {count}"
    return found


def body_of(message: bytes) -> bytes:
    """The second field, which follows the topic."""
    at = 7 + len(TOPIC)
    return message[at + 7 : at + 7 + int.from_bytes(message[at + 3 : at + 7], "big")]


def test_each_record_is_copied_once_and_in_order_over_kills_of_bridge_and_engine(home):
    flood = Flood(home)
    for victim in itertools.islice(itertools.cycle(("kafka_bridge", "engine")), KILLS):
        before = sum(ends(home))
        until(lambda before=before: sum(ends(home)) >= before + RECORDS_BETWEEN_KILLS, "copied records", COPIED_S_MAX)
        pid = home.penstock.kill(victim, signal.SIGKILL)
        home.penstock.wait_replaced(victim, pid)
    written = flood.stop()
    until(lambda: ends(home) == written, f"{written} copied records", COPIED_S_MAX)
    with link(home) as engine:
        for queue, count in enumerate(written):
            found = keys(engine, queue, count)
            assert [body for body, _ in found] == [b"%d" % number for number in range(count)]
            offsets = [offset for _, offset in found]
            assert offsets == sorted(set(offsets)), "each source offset once"
            assert offsets[-1] > count, "control records lie between, so Kafka's offsets differ"
