"""A Kafka cluster in this process' memory, behind the drivers' interface: records, faults on demand, held answers."""

import threading
from collections.abc import Mapping
from typing import NamedTuple

from common.contract import Code
from common.kafka.base import KafkaDriver, KafkaProducer, ProducerOptions
from common.kafka.connection import KafkaConnection
from common.kafka.errors import KafkaFault, KafkaRefusal
from common.kafka.records import NO_OFFSET, Headers, OutgoingRecords, Partition, ProduceResults


class StoredKafkaRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


class MemoryKafka:
    """The cluster.

    Attributes:
        fault: raised when a client is opened; None: clients are opened.
        refusal: (code, sentence) for every record that comes; None: they are stored.
        is_holding: results are kept back until `release()`.
        opened: connections of producers.
        fatal_faults: sentences, each of which ends one producer.
    """

    def __init__(self, **topics: int) -> None:
        self.partitions: dict[str, list[list[StoredKafkaRecord]]] = {}
        self.fault: KafkaFault | None = None
        self.refusal: tuple[int, str] | None = None
        self.is_holding = False
        self.opened: list[KafkaConnection] = []
        self.closed = 0
        self.fatal_faults: list[str] = []
        self._held: list = []
        self._lock = threading.Lock()
        for name, count in topics.items():
            self.create(name, count)

    def create(self, name: str, partitions: int) -> None:
        self.partitions[name] = [[] for _ in range(partitions)]

    def records(self, topic: str) -> list[StoredKafkaRecord]:
        return [each for partition in self.partitions[topic] for each in partition]

    def write(self, records: OutgoingRecords, on_results) -> None:
        with self._lock:
            results = self._store(records)
            if self.is_holding:
                self._held.append((on_results, results))
                return
        on_results(results)

    def release(self) -> None:
        """Give all results that were kept back."""
        with self._lock:
            held, self._held, self.is_holding = self._held, [], False
        for on_results, results in held:
            on_results(results)

    @property
    def held(self) -> int:
        return len(self._held)

    def _store(self, records: OutgoingRecords) -> ProduceResults:
        if self.refusal is not None:
            code, sentence = self.refusal
            count = len(records.topics)
            return ProduceResults([code] * count, [NO_OFFSET] * count, dict.fromkeys(range(count), sentence))
        offsets = []
        for topic, partition, timestamp, key, value, headers in zip(*records, strict=True):
            run = self.partitions[topic][partition]
            offsets.append(len(run))
            run.append(StoredKafkaRecord(key, value, headers, timestamp))
        return ProduceResults([int(Code.OK)] * len(offsets), offsets, {})


class MemoryKafkaProducer(KafkaProducer):
    def __init__(self, cluster: MemoryKafka) -> None:
        self._cluster = cluster

    @property
    def fatal_fault(self) -> str:
        return self._cluster.fatal_faults.pop() if self._cluster.fatal_faults else ""

    def partitions(self, topic: str) -> int:
        if topic not in self._cluster.partitions:
            raise KafkaRefusal(3, f'kafka topic "{topic}": it does not exist')
        return len(self._cluster.partitions[topic])

    def produce(self, records: OutgoingRecords, on_results) -> None:
        self._cluster.write(records, on_results)

    def flush(self, timeout_s: float) -> bool:
        return not self._cluster.held

    def begin(self) -> None:
        raise NotImplementedError

    def commit(self, positions: Mapping[Partition, int], group: str) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError

    def close(self, timeout_s: float) -> None:
        self._cluster.closed += 1
        self._cluster.release()


class MemoryKafkaDriver(KafkaDriver):
    name = "memory"

    def __init__(self, cluster: MemoryKafka) -> None:
        self._cluster = cluster

    def producer(self, connection: KafkaConnection, options: ProducerOptions) -> MemoryKafkaProducer:
        if self._cluster.fault is not None:
            raise self._cluster.fault
        self._cluster.opened.append(connection)
        return MemoryKafkaProducer(self._cluster)

    def reader(self, connection, options):
        raise NotImplementedError

    def admin(self, connection):
        raise NotImplementedError
