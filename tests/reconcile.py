"""Compares millions of messages in a real Kafka and a real engine: `python -m tests.reconcile [--messages N]`.

N records of 100 B lie in Kafka, and in the engine as the copier stores them, but one is missing, one is doubled and one is
altered there. Another process finds these three, repairs the missing and the altered one from Kafka, and compares again:
the doubled one stays, since a log takes nothing back. Its time, its CPU seconds and its peak memory are printed; the
making of the messages is left out. Needs some 500 bytes per message in TMPDIR.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from common.config.definitions import TopicDefinition
from common.kafka.base import END, KafkaProducer, NewKafkaTopic, ProducerOptions, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import open_driver
from common.kafka.records import OutgoingRecords, Partition, ProduceResults, Records
from engine.client import copied
from engine.client.admin import AdminClient
from engine.link.append import FSYNC, MEMORY, encode_append
from engine.link.batch import encode_batch, encode_packed_batch
from engine.link.codes import OK
from engine.link.copy import CopyPart
from engine.link.operations import APPEND, TOPIC
from engine.link.record import encode_record
from engine.link.topic import encode_topics
from kafka_bridge.copy_in.messages import RecordPlace, id_of_place, message_of
from kafka_bridge.copy_in.native import PackTarget, pack
from kafka_bridge.copy_out.positions import CopiedPositions, position_group
from kafka_bridge.source_identity import source_of
from migration.positions import EnginePositions
from migration.reconcile.bounds import BoundsFinder
from migration.reconcile.comparison import Compared, TopicComparison
from migration.reconcile.kafka_side import fetches
from migration.reconcile.lookups import FindingReads
from migration.reconcile.repair import TopicRepair
from migration.reconcile.spans import ReadRange, TimeSpan
from tests.e2e.test_engine_process import ADMIN_SECRET, EngineProcess
from tests.services.kafka import KafkaBrokers
from tests.waiting import until

NAME, QUEUES, BODY_SIZE, BATCH = "compared", 4, 100, 5_000
FIRST_MS = 1_700_000_000_000
PER_MINUTE = 2_000
"""Messages per queue and minute of their time: the drill-down reads one minute of a queue per planted fault."""


class Planted(NamedTuple):
    """Kafka offsets in queue 0 of the messages that are not in the engine as they should be."""

    missing: int
    doubled: int
    altered: int


class Sides:
    """A broker with a topic, and an engine. `brokers`: one that runs already."""

    def __init__(self, folder: Path, brokers: KafkaBrokers | None) -> None:
        self._own = None if brokers else KafkaBrokers(folder / "kafka").start()
        self.brokers = brokers or self._own
        self.connection = KafkaConnection("main", (self.brokers.bootstrap,))
        self.admin = open_driver().admin(self.connection)
        assert self.admin.create_topics({NAME: NewKafkaTopic(QUEUES, 1)}) == {}
        until(lambda: self.admin.topics([NAME]), "the topic", 30.0)
        self.engine = EngineProcess(folder / "engine")
        self.link = AdminClient(self.engine.address, ADMIN_SECRET, timeout_s=60.0)
        assert self.link.call(TOPIC, encode_topics([(NAME, QUEUES)]))[0] == OK

    def close(self) -> None:
        self.link.close()
        self.engine.process.kill()
        self.engine.process.wait(10)
        self.admin.close()
        if self._own is not None:
            self._own.stop()


def produce(sides: Sides, count: int) -> None:
    """Records without headers, as any producer of Kafka writes them; eight batches are on their way at a time."""
    with opened_producer(sides.connection) as producer:
        results: list[ProduceResults] = []
        for batch, first in enumerate(range(0, count, BATCH)):
            numbers = range(first, min(first + BATCH, count))
            records = OutgoingRecords(
                [NAME] * len(numbers), [number % QUEUES for number in numbers],
                [FIRST_MS + number // QUEUES * 60_000 // PER_MINUTE for number in numbers],
                [b"k%d" % (number % 64) for number in numbers], [b"%0100d" % number for number in numbers],
                [()] * len(numbers),
            )  # fmt: skip
            producer.produce(records, results.append)
            until(lambda batch=batch: len(results) >= batch - 8, "the results", 60.0)
        until(lambda: len(results) == batch + 1, "the results", 60.0)
        assert all(each.all_stored for each in results)


@contextmanager
def opened_producer(connection: KafkaConnection) -> Iterator[KafkaProducer]:
    producer = open_driver().producer(connection, ProducerOptions())
    try:
        yield producer
    finally:
        producer.close(5.0)


def copy(sides: Sides, count: int, planted: Planted) -> None:
    """Copy as the copier does, but for what is planted."""
    topic, cluster = sides.admin.topics([NAME])[NAME], sides.admin.describe().cluster_id
    sources = [source_of(cluster, topic, queue) for queue in range(QUEUES)]
    states = [
        copied.accept(sides.link, NAME, queue, source, start=0, replaces=0, reason="a test")
        for queue, source in enumerate(sources)
    ]
    log_id, following = sides.link.hello.log_id, [0] * QUEUES
    partitions = [Partition(NAME, queue) for queue in range(QUEUES)]
    ends = sides.admin.offsets(partitions, END)
    assert sum(ends.values()) == count
    with closing(open_driver().reader(sides.connection, ReaderOptions())) as reader:
        for fetched in fetches(reader, {each: ReadRange(0, ends[each]) for each in partitions}):
            queue = fetched.partition.number
            target = PackTarget(NAME.encode(), topic.id.bytes, queue, log_id, states[queue].topic_id)
            records, first = faulty(fetched, planted) if queue == 0 else fetched, 0
            while first < len(records.offsets):
                packed = pack(records, first, target, 1 << 20)
                number, topic_id = states[queue].number, states[queue].topic_id
                batch = encode_packed_batch(topic_id, queue, number, packed.data, packed.copied)
                (done,) = copied.copy(sides.link, MEMORY, [CopyPart(sources[queue], following[queue], batch)])
                assert done.code == OK
                first, following[queue] = packed.following, done.next
    write_again(sides, topic.id.bytes, planted.doubled, states[0].topic_id)


def faulty(fetched: Records, planted: Planted) -> Records:
    """The records without the missing one, and with another body of the altered one."""
    values = list(fetched.values)
    if planted.altered in fetched.offsets:
        values[fetched.offsets.index(planted.altered)] = b"x" * BODY_SIZE
    kept = [index for index, offset in enumerate(fetched.offsets) if offset != planted.missing]
    columns = [
        [column[index] for index in kept]
        for column in (fetched.offsets, fetched.timestamps, fetched.keys, values, fetched.headers)
    ]
    return Records(fetched.partition, fetched.next_offset, *columns)


def write_again(sides: Sides, topic_id: bytes, offset: int, engine_topic: int) -> None:
    """Append the copy of a record once more, under its id."""
    partition = Partition(NAME, 0)
    with closing(open_driver().reader(sides.connection, ReaderOptions())) as reader:
        fetched = next(iter(fetches(reader, {partition: ReadRange(offset, offset + 1)})))
    row = (fetched.timestamps[0], fetched.keys[0], fetched.values[0], fetched.headers[0])
    message = message_of(NAME.encode(), RecordPlace(topic_id, 0, offset), *row)
    record = encode_record(message.encoded, message.assigned_id or b"")
    code, answer = sides.link.call(APPEND, encode_append(FSYNC, encode_batch(engine_topic, 0, [record])))
    assert code == OK, answer


class Comparing:
    """The process that compares."""

    def __init__(self, bootstrap: str, port: int) -> None:
        self.connection = KafkaConnection("main", (bootstrap,))
        self.admin = open_driver().admin(self.connection)
        self.link = AdminClient(("127.0.0.1", port), ADMIN_SECRET, timeout_s=60.0)
        self.engine = EnginePositions({"main": self.link})

    def open_reader(self):
        return open_driver().reader(self.connection, ReaderOptions())

    def compare(self) -> tuple[Compared, FindingReads]:
        back = CopiedPositions(lambda: self.admin, self.open_reader, position_group("reconcile"))
        finder = BoundsFinder(self.admin, self.engine, self.open_reader, back, TimeSpan())
        bounds = finder.of(TopicDefinition(NAME, home="kafka:main", queues=QUEUES), has_copy_back=False)
        tell = lambda sentence: print(sentence, file=sys.stderr, flush=True)  # noqa: E731
        found = TopicComparison(bounds, self.engine, self.open_reader, tell).run()
        reads = FindingReads(bounds, self.admin, self.engine, self.open_reader)
        found.findings = reads.confirmed(found.findings)
        return found, reads

    def run(self) -> dict:
        before, steps = measured(), {}
        found, reads = self.compare()
        steps["compare"] = after(before)
        before = measured()
        with opened_producer(self.connection) as producer:
            repaired = TopicRepair(reads, lambda: producer).repair(found.findings, take="kafka")
        steps["repair"] = after(before)
        before = measured()
        again, _ = self.compare()
        steps["compare again"] = after(before)
        with open("/proc/self/status") as status:
            peak_kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        return {
            "topic_id": reads.bounds.scopes[0].kafka_topic_id.hex(),
            "messages": found.kafka, "in_engine": found.engine, "windows": found.windows,
            "differing": found.differing, "drilled_rows": found.rows, "found": rows_of(found), "again": rows_of(again),
            "repaired": [repaired.engine, repaired.kafka], "steps": steps, "peak_mib": peak_kib / 1024,
        }  # fmt: skip


def rows_of(found: Compared) -> list:
    return sorted([str(each.kind), each.id, each.kafka_offsets, each.engine_offsets] for each in found.findings)


def measured() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.monotonic(), used.ru_utime + used.ru_stime


def after(before: tuple[float, float]) -> dict[str, float]:
    now = measured()
    return {"seconds": round(now[0] - before[0], 2), "cpu_seconds": round(now[1] - before[1], 2)}


def run(folder: Path, count: int, brokers: KafkaBrokers | None = None) -> tuple[Planted, dict]:
    """Make both sides, plant the faults, and let another process find them."""
    per_queue = count // QUEUES
    planted = Planted(per_queue // 4, per_queue // 2, per_queue * 3 // 4)
    sides = Sides(folder, brokers)
    try:
        produce(sides, count)
        print(f"{count:,} records are in Kafka", file=sys.stderr, flush=True)
        copy(sides, count, planted)
        print("and in the engine", file=sys.stderr, flush=True)
        port = str(sides.engine.address[1])
        line = [sys.executable, "-m", "tests.reconcile", "--compare", sides.brokers.bootstrap, port]
        done = subprocess.run(line, stdout=subprocess.PIPE, check=True)
        return planted, json.loads(done.stdout)
    finally:
        sides.close()


def check(planted: Planted, found: dict) -> None:
    """Raises AssertionError: something else was found than was planted."""
    (altered, doubled, missing), again = sorted(found["found"]), sorted(found["again"])
    assert (altered[0], altered[2]) == ("altered", [planted.altered])
    assert (doubled[0], doubled[2]) == ("doubled in the engine", [planted.doubled]) and len(doubled[3]) == 2
    assert (missing[0], missing[2], missing[3]) == ("missing in the engine", [planted.missing], [])
    assert found["repaired"] == [2, 0], "the missing one, and the altered one once more"
    assert missing[1] == id_of_place(RecordPlace(bytes.fromhex(found["topic_id"]), 0, planted.missing)).hex()
    assert [each[:2] for each in again] == [doubled[:2], ["superseded", altered[1]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=10_000_000, help="messages on each side (default 10,000,000)")
    parser.add_argument("--compare", nargs=2, metavar=("BOOTSTRAP", "PORT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.compare:
        print(json.dumps(Comparing(given.compare[0], int(given.compare[1])).run()))
        return
    with tempfile.TemporaryDirectory(prefix="penstock-reconcile-") as name:
        planted, found = run(Path(name), given.messages)
    print(json.dumps({"planted": planted._asdict(), **found}, indent=1))
    check(planted, found)
    print(f"found what was planted, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
