"""Writes records of 128 bytes to a Kafka topic at a steady rate until it is ended.

`python -m bench.kafka.stream BOOTSTRAP TOPIC RECORDS_PER_S`: prints a line once it can send. It runs only where other
processes leave time (SCHED_IDLE), as the bridge does in the benchmark of dual writes.
"""

import os
import sys
import time

from bench.kafka.desk import CLUSTER, PARTITIONS
from common.kafka.base import ProducerOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import open_driver
from common.kafka.records import OutgoingRecords

SIZE = 128
ROUNDS_PER_S = 50
"""About as many requests as the copies of a dual write make."""


def main() -> None:
    bootstrap, topic, per_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # threads that begin from now on inherit it
    count = round(per_s / ROUNDS_PER_S)
    producer = open_driver().producer(KafkaConnection(CLUSTER, (bootstrap,)), ProducerOptions(linger_ms=1))
    producer.partitions(topic)
    print("ready", flush=True)
    due = time.monotonic()
    while True:
        time.sleep(max(0.0, due - time.monotonic()))  # the pace
        producer.produce(_records(topic, count), lambda results: None)
        due += count / per_s


def _records(topic: str, count: int) -> OutgoingRecords:
    partitions = [number % PARTITIONS for number in range(count)]
    headers = [[("penstock-id", b"i" * 26)] for _ in range(count)]
    return OutgoingRecords([topic] * count, partitions, [-1] * count, [None] * count, [b"x" * SIZE] * count, headers)


if __name__ == "__main__":
    main()
