"""Results of produced records, gathered from callbacks per record into one call per batch: the base of both producers."""

import logging
import threading
import time
from abc import abstractmethod
from collections.abc import Callable

from common.contract import Code
from common.kafka.base import KafkaProducer, OnResults, ProducerOptions
from common.kafka.errors import KafkaFault
from common.kafka.native import payload_bytes
from common.kafka.partition_counts import PartitionCounts
from common.kafka.records import OutgoingRecords, ProduceResults, refused

log = logging.getLogger("penstock.kafka")


class Outstanding:
    """Batches and payload that have no results yet, with a bound of the payload. Thread-safe."""

    def __init__(self, bytes_max: int, now: Callable[[], float] = time.monotonic) -> None:
        self._max, self._bytes, self._batches = bytes_max, 0, 0
        self._now, self._moved_at = now, 0.0
        self._changed = threading.Condition()

    def add(self, size: int) -> bool:
        """Whether it was added. One batch is always allowed, however large it is."""
        with self._changed:
            if self._batches and self._bytes + size > self._max:
                return False
            if not self._batches:
                self._moved_at = self._now()
            self._bytes += size
            self._batches += 1
            return True

    def remove(self, size: int) -> None:
        with self._changed:
            self._bytes -= size
            self._batches -= 1
            self._moved_at = self._now()
            if not self._batches:
                self._changed.notify_all()

    def wait_until_none(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._batches, max(timeout_s, 0.0))

    def stalled_s(self) -> float:
        """Seconds for which batches have waited and none got its results."""
        with self._changed:
            return self._now() - self._moved_at if self._batches else 0.0


class GatheringProducer(KafkaProducer):
    """A producer whose library reports each record by itself. Drivers send, and ask for a topic's partitions."""

    def __init__(self, cluster: str, options: ProducerOptions) -> None:
        self._cluster = cluster
        self._overloaded = int(Code.OVERLOADED), f'kafka "{cluster}": too much waits for Kafka'
        self._outstanding = Outstanding(options.pending_bytes_max)
        self._counts = PartitionCounts(self._ask)

    @property
    def stalled_s(self) -> float:
        return self._outstanding.stalled_s()

    def partitions(self, topic: str) -> int:
        return self._counts.of(topic)

    def produce(self, records: OutgoingRecords, on_results: OnResults) -> None:
        size, count = payload_bytes(records), len(records.topics)
        if not count:
            on_results(ProduceResults([], [], {}))
            return
        if not self._outstanding.add(size):
            on_results(refused(count, *self._overloaded))
            return

        def finish(results: ProduceResults) -> None:
            try:
                on_results(results)
            except Exception:  # in a callback of the library, which would not know what to do with it
                log.exception("kafka=%s: internal error while results were told", self._cluster)
            finally:
                self._outstanding.remove(size)

        self._send(records, finish)

    def _unknown_topics(self, records: OutgoingRecords) -> dict[str, str]:
        """Topics that cannot be sent to, and why."""
        found = {}
        for topic in set(records.topics):
            try:
                self._counts.of(topic)
            except KafkaFault as fault:
                found[topic] = str(fault)
        return found

    @abstractmethod
    def _ask(self, topic: str) -> int:
        """A topic's number of partitions, from the cluster. Raises KafkaFault."""

    @abstractmethod
    def _send(self, records: OutgoingRecords, finish: OnResults) -> None:
        """Hand the records to the library; `finish` is called once with the results of all."""
