"""A Kafka cluster in this process' memory, behind the drivers' interface: records, faults on demand, held answers."""

import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID, uuid4

from common.contract import Code
from common.kafka.base import (
    EARLIEST,
    NO_NOTES,
    ClusterAdmin,
    ClusterDescription,
    KafkaDriver,
    KafkaProducer,
    KafkaTopic,
    PartitionReader,
    ProducerOptions,
    ReaderOptions,
)
from common.kafka.connection import KafkaConnection
from common.kafka.errors import KafkaFault, KafkaRefusal, PositionOutOfRange
from common.kafka.group_admin import CommittedPosition
from common.kafka.records import NO_OFFSET, Headers, OutgoingRecords, Partition, ProduceResults, Records


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
        opened: connections of producers; `refused`: how many were asked for while there was a fault.
        fatal_faults: sentences, each of which ends one producer.
        committed: positions by group.
        clients: how many were opened, by kind; readers and administration clients only.
        asked_topics, topics_per_question: questions for topics, and the topics of the last one.
        refused_reads: by topic, raised when it is read.
        interruptions: connections of readers that have ended.
        leader_epoch: of all partitions.
        cluster_id: another one is of another cluster at the same address.
        stalled_s: time for which producers have got no result; `looks`: how often they were asked for it.
    """

    def __init__(self, **topics: int) -> None:
        self.partitions: dict[str, list[list[StoredKafkaRecord]]] = {}
        self.fault: KafkaFault | None = None
        self.refusal: tuple[int, str] | None = None
        self.is_holding = False
        self.opened: list[KafkaConnection] = []
        self.closed = self.refused = 0
        self.fatal_faults: list[str] = []
        self.stalled_s, self.looks, self.interruptions = 0.0, 0, 0
        self.cluster_id, self.leader_epoch = "memory", 0
        self.clients: Counter[str] = Counter()
        self.asked_topics = self.topics_per_question = 0
        self.refused_reads: dict[str, KafkaRefusal] = {}
        self.ids: dict[str, UUID] = {}
        self.starts: dict[Partition, int] = {}
        self.committed: dict[str, dict[Partition, CommittedPosition]] = {}
        self._held: list = []
        self._lock = threading.Lock()
        for name, count in topics.items():
            self.create(name, count)

    def create(self, name: str, partitions: int) -> None:
        """Make a topic, also one that exists: it is another one then."""
        self.partitions[name] = [[] for _ in range(partitions)]
        self.ids[name] = uuid4()
        self.starts = {each: start for each, start in self.starts.items() if each.topic != name}

    def add(self, topic: str, partition: int, *values: bytes | None, headers: Headers = ()) -> None:
        """Store records with these values."""
        run = self.partitions[topic][partition]
        run += [StoredKafkaRecord(b"k", value, headers, 5) for value in values]

    def bounds(self, partition: Partition) -> tuple[int, int]:
        """Its first offset and its end. Raises KafkaRefusal: there is no such partition."""
        if partition.number >= len(self.partitions[partition.topic]):
            raise KafkaRefusal(3, f'kafka topic "{partition.topic}": there is no partition {partition.number}')
        return self.starts.get(partition, 0), len(self.partitions[partition.topic][partition.number])

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

    @property
    def stalled_s(self) -> float:
        self._cluster.looks += 1
        return self._cluster.stalled_s

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

    def commit(self, positions: Mapping[Partition, int], group: str, notes: Mapping[Partition, str] = NO_NOTES) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError

    def close(self, timeout_s: float) -> None:
        self._cluster.closed += 1
        self._cluster.release()


class MemoryKafkaReader(PartitionReader):
    def __init__(self, cluster: MemoryKafka, options: ReaderOptions) -> None:
        self._cluster, self._options = cluster, options
        self._positions: dict[Partition, int] = {}
        self._paused: set[Partition] = set()

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self._positions, self._paused = dict(positions), set()

    def add(self, positions: Mapping[Partition, int]) -> None:
        self._positions |= positions
        self._paused -= set(positions)

    def remove(self, partitions: Collection[Partition]) -> None:
        for each in partitions:
            self._positions.pop(each, None)

    def pause(self, partitions: Collection[Partition]) -> None:
        self._paused |= set(partitions)

    def resume(self, partitions: Collection[Partition]) -> None:
        self._paused -= set(partitions)

    def poll(self, wait_s: float) -> list[Records]:
        if self._cluster.fault is not None:
            raise self._cluster.fault
        for topic, refusal in self._cluster.refused_reads.items():
            if any(each.topic == topic for each in self._positions):
                raise refusal
        found = [self._fetch(each, at) for each, at in self._positions.items() if each not in self._paused]
        fetched = [each for each in found if each.offsets]
        self._positions |= {each.partition: each.next_offset for each in fetched}
        if not fetched:
            time.sleep(min(wait_s, 0.005))
        return fetched

    def _fetch(self, partition: Partition, at: int) -> Records:
        start, end = self._cluster.bounds(partition)
        if not start <= at <= end:
            raise PositionOutOfRange(partition, f"{partition.topic} {partition.number}: there is no offset {at}")
        until = min(end, at + self._options.records_max)
        run = self._cluster.partitions[partition.topic][partition.number][at:until]
        columns = [*zip(*run, strict=True)] or [(), (), (), ()]
        keys, values, headers, timestamps = columns
        return Records(partition, until, range(at, until), timestamps, keys, values, headers)

    def positions(self) -> dict[Partition, int]:
        return dict(self._positions)

    @property
    def interruptions(self) -> int:
        return self._cluster.interruptions

    def close(self) -> None:
        self._positions = {}


class MemoryKafkaAdmin(ClusterAdmin):
    def __init__(self, cluster: MemoryKafka) -> None:
        self._cluster = cluster

    def describe(self) -> ClusterDescription:
        return ClusterDescription(self._cluster.cluster_id, 1, [])

    def topics(self, names: Sequence[str] | None = None) -> dict[str, KafkaTopic]:
        known = self._cluster.partitions
        self._cluster.asked_topics += 1
        self._cluster.topics_per_question = len(known if names is None else names)
        return {
            name: KafkaTopic(name, self._cluster.ids[name], len(known[name]), 3)
            for name in (known if names is None else names)
            if name in known
        }

    def offsets(self, partitions: Sequence[Partition], at: int) -> dict[Partition, int | None]:
        if at >= 0:
            return {each: self._since(each, at) for each in partitions}
        return {each: self._cluster.bounds(each)[0 if at == EARLIEST else 1] for each in partitions}

    def _since(self, partition: Partition, time_ms: int) -> int | None:
        start, end = self._cluster.bounds(partition)
        run = self._cluster.partitions[partition.topic][partition.number]
        return next((at for at in range(start, end) if run[at].timestamp >= time_ms), None)

    def leader_epochs(self, partitions):
        return dict.fromkeys(partitions, self._cluster.leader_epoch)

    def create_topics(self, topics):
        raise NotImplementedError

    def configs(self, names):
        raise NotImplementedError

    def alter_configs(self, topic, configs):
        raise NotImplementedError

    def groups(self):
        raise NotImplementedError

    def committed(self, group, partitions=None):
        return self._cluster.committed.get(group, {})

    def committed_on(self, groups, topics):
        raise NotImplementedError

    def subscribed(self, groups):
        raise NotImplementedError

    def not_joinable(self, groups):
        raise NotImplementedError

    def set_group_offsets(self, group, positions):
        raise NotImplementedError

    def delete_topics(self, names):
        raise NotImplementedError

    def delete_groups(self, groups):
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""


class MemoryKafkaDriver(KafkaDriver):
    name = "memory"

    def __init__(self, cluster: MemoryKafka) -> None:
        self._cluster = cluster

    def producer(self, connection: KafkaConnection, options: ProducerOptions) -> MemoryKafkaProducer:
        if self._cluster.fault is not None:
            self._cluster.refused += 1
            raise self._cluster.fault
        self._cluster.opened.append(connection)
        return MemoryKafkaProducer(self._cluster)

    def reader(self, connection: KafkaConnection, options: ReaderOptions) -> MemoryKafkaReader:
        self._cluster.clients["reader"] += 1
        return self._checked(MemoryKafkaReader(self._cluster, options))

    def admin(self, connection: KafkaConnection) -> MemoryKafkaAdmin:
        self._cluster.clients["admin"] += 1
        return self._checked(MemoryKafkaAdmin(self._cluster))

    def group_reader(self, connection, options, listener):
        raise NotImplementedError

    def _checked(self, made):
        if self._cluster.fault is not None:
            raise self._cluster.fault
        return made
