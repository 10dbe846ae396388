"""Cost of both Kafka drivers and of Java's producer beside them: `python -m bench.kafka_drivers [--records N] [--rounds N]`.

Question: which driver can carry a Kafka home, and at what CPU per record (docs/design/0034-kafka.md, "Measure first").
Settings: one broker, 8 partitions, batches of 500 records, idempotent, acks=all, results per record, two headers.
The figure is CPU time of the whole process, threads of the library included; the broker's and the making of the records
are left out. Records/s depend on the machine's load. Rounds alternate between the drivers; the median is shown.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.outcome import commit
from bench.peers.kafka import one_broker
from bench.peers.kafka_node import java_line
from bench.report import machine
from common.kafka.base import ClusterAdmin, KafkaDriver, KafkaProducer, NewKafkaTopic, ProducerOptions, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import installed, open_driver
from common.kafka.records import OutgoingRecords, Partition, ProduceResults
from common.keyhash import queue_of

SIZES = (128, 2048)
PARTITIONS = 8
BATCH = 500
BATCHES_WAITING = 20
NOW = 1_700_000_000_000
FOR_EVER = {"retention.ms": "-1"}
"""Brokers delete by the records' own time, which is long past here."""
JAVA = "java"
JAVA_PROGRAM = "org.apache.kafka.tools.ProducerPerformance"
JAVA_SETTINGS = ("acks=all", "enable.idempotence=true", "linger.ms=5", "batch.size=65536")


class DriverCost(NamedTuple):
    cpu_us: float
    records_per_s: float


def create(admin: ClusterAdmin, topic: str) -> None:
    """Return when the broker serves it."""
    if refusals := admin.create_topics({topic: NewKafkaTopic(PARTITIONS, 1, FOR_EVER)}):
        raise refusals[topic]
    while not admin.topics([topic]):
        time.sleep(0.05)


def measured(count: int, work: Callable[[], None]) -> DriverCost:
    began, cpu = time.monotonic(), time.process_time()
    work()
    used, passed = time.process_time() - cpu, time.monotonic() - began
    return DriverCost(used / count * 1e6, count / passed)


class PlainProducers(NamedTuple):
    """confluent-kafka's producer as applications use it, by its package; no module but its driver's imports it."""

    name: str

    def producer(self, connection: KafkaConnection, options: ProducerOptions) -> KafkaProducer:
        opened: KafkaProducer = import_module("common.kafka.librdkafka.producer").LibrdkafkaProducer(
            connection, options
        )
        return opened


def plain_producer(driver: KafkaDriver) -> KafkaDriver | PlainProducers:
    """A driver whose producers are those of the library itself, as an application would use them."""
    return PlainProducers(driver.name) if driver.name == "confluent-kafka" else driver


def produce(
    driver: KafkaDriver | PlainProducers, connection: KafkaConnection, topic: str, size: int, count: int, keys: int = 0
) -> DriverCost:
    """Args: keys: distinct keys of each batch, which go to their partitions; 0: each batch goes to one partition."""
    producer = driver.producer(connection, ProducerOptions(pending_bytes_max=1 << 30))
    producer.partitions(topic)
    batches = [_batch(topic, number, size, keys) for number in range(PARTITIONS)]
    room, wrong = threading.Semaphore(BATCHES_WAITING), []

    def on_results(results: ProduceResults) -> None:
        if not results.all_stored:
            wrong.append(results)
        room.release()

    def work() -> None:
        for number in range(count // BATCH):
            room.acquire()
            producer.produce(batches[number % PARTITIONS], on_results)
        producer.flush(300.0)

    cost = measured(count, work)
    producer.close(5.0)
    if wrong:
        raise SystemExit(
            f"bench: {driver.name}: not all records were stored: {next(iter(wrong[0].sentences.values()))}"
        )
    return cost


def _batch(topic: str, partition: int, size: int, distinct: int) -> OutgoingRecords:
    headers = [[("penstock-id", os.urandom(16).hex().encode()), ("penstock-tag", b"bench")] for _ in range(BATCH)]
    keys = [b"key-%d" % (number % (distinct or BATCH)) for number in range(BATCH)]
    partitions = [queue_of(key, PARTITIONS) for key in keys] if distinct else [partition] * BATCH
    values: list[bytes | None] = [os.urandom(size) for _ in range(BATCH)]
    return OutgoingRecords([topic] * BATCH, partitions, [NOW] * BATCH, keys, values, headers)


def consume(driver: KafkaDriver, connection: KafkaConnection, topic: str, count: int) -> DriverCost:
    reader = driver.reader(connection, ReaderOptions())
    reader.assign({Partition(topic, number): 0 for number in range(PARTITIONS)})

    def work() -> None:
        seen = 0
        while seen < count:
            seen += sum(len(records.offsets) for records in reader.poll(1.0))

    cost = measured(count, work)
    reader.close()
    return cost


def produce_by_java(folder: Path, bootstrap: str, topic: str, size: int, count: int) -> DriverCost:
    """Without headers. The start of the virtual machine is measured alone and subtracted."""
    start_s, _ = _java(folder, bootstrap, topic, size, 1)
    used_s, passed_s = _java(folder, bootstrap, topic, size, count)
    return DriverCost((used_s - start_s) / count * 1e6, count / passed_s)


def _java(folder: Path, bootstrap: str, topic: str, size: int, count: int) -> tuple[float, float]:
    program = [*java_line(JAVA_PROGRAM, folder, "512m"), "--topic", topic, "--throughput", "-1"]
    shape = ["--num-records", str(count), "--record-size", str(size)]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    settings = ["--producer-props", f"bootstrap.servers={bootstrap}", *JAVA_SETTINGS]
    subprocess.run([*program, *shape, *settings], check=True, cwd=folder, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - began


def run(records: int, rounds: int, say: Callable[[str], None]) -> dict[tuple[str, str, int], list[DriverCost]]:
    """Costs by driver, direction and size."""
    costs: dict[tuple[str, str, int], list[DriverCost]] = {}
    with one_broker() as broker:
        connection = KafkaConnection("bench", (broker.address,), connect_timeout_s=60.0)
        drivers = [open_driver(name) for name in installed()]
        admin = drivers[0].admin(connection)
        for size in SIZES:
            count = records if size == min(SIZES) else records // 4
            for number in range(rounds):
                for driver in drivers:
                    topic = f"{driver.name}-{size}-{number}"
                    create(admin, topic)
                    sent = produce(driver, connection, topic, size, count)
                    costs.setdefault((driver.name, "produce", size), []).append(sent)
                    read = consume(driver, connection, topic, count)
                    costs.setdefault((driver.name, "consume", size), []).append(read)
                    say(f"{driver.name}, {size} B: {sent.cpu_us:.2f} µs to produce, {read.cpu_us:.2f} µs to consume")
                topic = f"{JAVA}-{size}-{number}"
                create(admin, topic)
                sent = produce_by_java(broker.folder, broker.address, topic, size, count * 5)
                costs.setdefault((JAVA, "produce", size), []).append(sent)
                say(f"{JAVA}, {size} B: {sent.cpu_us:.2f} µs to produce")
        admin.close()
    return costs


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.kafka_drivers", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000, help="of 128 B; a quarter of it of 2 KiB")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    if options.records < 4 * BATCH * PARTITIONS:
        parser.error(f"--records: use at least {4 * BATCH * PARTITIONS:,}")
    costs = run(options.records, options.rounds, lambda text: print(text, file=sys.stderr, flush=True))
    table = Table(title=f"Kafka drivers · {commit()} · {machine()}")
    for heading in ("driver", "direction", "bytes", "CPU µs per record", "of each round", "records/s"):
        table.add_column(heading)
    for (driver, direction, size), found in sorted(
        costs.items(), key=lambda item: (item[0][2], item[0][1], item[0][0])
    ):
        cpu = statistics.median(each.cpu_us for each in found)
        rate = statistics.median(each.records_per_s for each in found)
        each_round = " ".join(f"{each.cpu_us:.2f}" for each in found)
        table.add_row(driver, direction, str(size), f"{cpu:.2f}", each_round, f"{rate:,.0f}")
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
