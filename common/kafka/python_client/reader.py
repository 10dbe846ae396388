"""Reader of partitions over kafka-python. poll() gives named tuples, which become columns in one step."""

from collections.abc import Collection, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from common.kafka.base import PartitionReader, ReaderOptions
from common.kafka.codes import UNKNOWN_TOPIC_OR_PARTITION
from common.kafka.connection import KafkaConnection
from common.kafka.errors import KafkaRefusal
from common.kafka.python_client.faults import translated
from common.kafka.python_client.options import common_options, opened
from common.kafka.records import Partition, Records

OFFSET, TIMESTAMP, KEY, VALUE, HEADERS = 3, 4, 6, 7, 8
"""Columns of the library's ConsumerRecord."""


class PythonReader(PartitionReader):
    def __init__(self, connection: KafkaConnection, options: ReaderOptions) -> None:
        self._cluster, self._options = connection.name, options
        self._positions: dict[Partition, int] = {}
        self._client = opened(connection, KafkaConsumer, {**common_options(connection), **_library_options(options)})

    def assign(self, positions: Mapping[Partition, int]) -> None:
        with translated(self._cluster):
            for topic in {each.topic for each in positions}:
                if not self._client.partitions_for_topic(topic):
                    raise KafkaRefusal(
                        UNKNOWN_TOPIC_OR_PARTITION, f'kafka "{self._cluster}": topic {topic} does not exist there'
                    )
            self._client.assign([TopicPartition(*each) for each in positions])
            for partition, offset in positions.items():
                self._client.seek(TopicPartition(*partition), offset)
        self._positions = dict(positions)

    def pause(self, partitions: Collection[Partition]) -> None:
        self._client.pause(*(TopicPartition(*each) for each in partitions))

    def resume(self, partitions: Collection[Partition]) -> None:
        self._client.resume(*(TopicPartition(*each) for each in partitions))

    def poll(self, wait_s: float) -> list[Records]:
        with translated(self._cluster):
            fetched = self._client.poll(int(wait_s * 1000))
            if not fetched:
                return self._moved()
            return [self._records(Partition(*key), records) for key, records in fetched.items()]

    def _records(self, partition: Partition, records: list[Any]) -> Records:
        columns = [*zip(*records, strict=True)]
        next_offset = self._position(partition)
        self._positions[partition] = next_offset
        return Records(
            partition, next_offset, columns[OFFSET], columns[TIMESTAMP], columns[KEY], columns[VALUE], columns[HEADERS]
        )

    def _moved(self) -> list[Records]:
        """Partitions that gave only what is skipped: control records and aborted transactions."""
        moved = []
        for partition, before in self._positions.items():
            if (now := self._position(partition)) != before:
                moved.append(Records(partition, now, (), (), (), (), ()))
        self._positions.update((each.partition, each.next_offset) for each in moved)
        return moved

    def _position(self, partition: Partition) -> int:
        # 0: without a request, since the position is known after seek().
        return self._client.position(TopicPartition(*partition), timeout_ms=0)

    def positions(self) -> dict[Partition, int]:
        return dict(self._positions)

    def close(self) -> None:
        self._client.close(autocommit=False)


def _library_options(options: ReaderOptions) -> dict[str, Any]:
    return {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "isolation_level": "read_committed" if options.committed_only else "read_uncommitted",
        "check_crcs": True,
        "max_poll_records": options.records_max,
        "max_partition_fetch_bytes": options.partition_bytes,
        "fetch_max_wait_ms": 100,
        "fetch_min_bytes": 1,
        "request_timeout_ms": 30_000,
        "metadata_max_age_ms": 30_000,
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
    }
