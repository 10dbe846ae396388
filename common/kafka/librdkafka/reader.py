"""Reader of partitions over librdkafka."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from common.kafka.base import PartitionReader, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.librdkafka.faults import fault_of, translated
from common.kafka.librdkafka.fetching import LibrdkafkaFetching
from common.kafka.librdkafka.options import ENDS_LOG_LEVEL, common_options, opened
from common.kafka.records import Partition, Records

METADATA_WAIT_S = 5.0


class LibrdkafkaReader(PartitionReader):
    def __init__(self, connection: KafkaConnection, options: ReaderOptions) -> None:
        self._cluster = connection.name
        # The library wants a group; nothing joins or commits it.
        settings = {**common_options(connection), **reading_options(options), "group.id": "penstock-reader"}
        self._client, self._last = opened(connection, Consumer, settings, lambda client: client.poll(0))
        self._fetching = LibrdkafkaFetching(connection.name, self._client, options.records_max)

    def assign(self, positions: Mapping[Partition, int]) -> None:
        check_topics(self._cluster, self._client, {each.topic for each in positions})
        with translated(self._cluster):
            self._client.assign([TopicPartition(*each, at) for each, at in positions.items()])
        self._fetching.restart(dict(positions))

    def add(self, positions: Mapping[Partition, int]) -> None:
        self.remove([each for each in positions if each in self._fetching.positions])
        with translated(self._cluster):
            self._client.incremental_assign([TopicPartition(*each, at) for each, at in positions.items()])
        self._fetching.positions.update(positions)

    def remove(self, partitions: Collection[Partition]) -> None:
        left = [each for each in partitions if each in self._fetching.positions]
        if left:
            with translated(self._cluster):
                self._client.incremental_unassign([TopicPartition(*each) for each in left])
        for each in left:
            del self._fetching.positions[each]

    def pause(self, partitions: Collection[Partition]) -> None:
        self._client.pause([TopicPartition(*each) for each in partitions])

    def resume(self, partitions: Collection[Partition]) -> None:
        self._client.resume([TopicPartition(*each) for each in partitions])

    def poll(self, wait_s: float) -> list[Records]:
        return self._fetching.poll(wait_s)

    def positions(self) -> dict[Partition, int]:
        return dict(self._fetching.positions)

    @property
    def interruptions(self) -> int:
        return self._last.interruptions

    def close(self) -> None:
        self._client.close()


def check_topics(cluster: str, client: Consumer, topics: Iterable[str]) -> None:
    """Raises KafkaRefusal: a topic does not exist, or the user may not see it."""
    for topic in topics:
        with translated(cluster):
            found = client.list_topics(topic, METADATA_WAIT_S).topics[topic]
        if found.error is not None:
            raise fault_of(cluster, found.error, f"topic {topic}: ")


def reading_options(options: ReaderOptions) -> dict[str, Any]:
    """Options of every consumer."""
    return {
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed" if options.committed_only else "read_uncommitted",
        "check.crcs": True,
        "log_level": ENDS_LOG_LEVEL,
        "enable.partition.eof": True,  # the only way to see that control records were passed
        "fetch.message.max.bytes": options.partition_bytes,
        "fetch.wait.max.ms": int(options.wait_s * 1000),
        "fetch.min.bytes": 1,
        "queued.max.messages.kbytes": 32 << 10,
    }
