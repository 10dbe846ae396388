"""Reader of partitions over kafka-python."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from common.kafka.base import PartitionReader, ReaderOptions
from common.kafka.codes import UNKNOWN_TOPIC_OR_PARTITION
from common.kafka.connection import KafkaConnection
from common.kafka.errors import KafkaRefusal
from common.kafka.python_client.faults import translated
from common.kafka.python_client.fetching import PythonFetching
from common.kafka.python_client.mended import bound_questions, validate_after_metadata
from common.kafka.python_client.options import EndedConnections, common_options, opened
from common.kafka.records import Partition, Records


class PythonReader(PartitionReader):
    def __init__(self, connection: KafkaConnection, options: ReaderOptions) -> None:
        self._cluster = connection.name
        settings = {**common_options(connection), **reading_options(options), "group_id": None}
        self._ended = EndedConnections()
        self._client = opened(connection, KafkaConsumer, settings, self._ended)
        validate_after_metadata(self._client)
        bound_questions(self._client)
        self._fetching = PythonFetching(connection.name, self._client)
        self._known: set[str] = set()  # topics that were there when they were looked for

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self._look_for({each.topic for each in positions})
        with translated(self._cluster):
            self._client.assign([TopicPartition(*each) for each in positions])
            for partition, offset in positions.items():
                self._client.seek(TopicPartition(*partition), offset)
        self._fetching.positions = dict(positions)

    def _look_for(self, topics: set[str]) -> None:
        """Raises KafkaRefusal. The library's question for a topic that is not assigned is one for all topics: ask once."""
        if topics - self._known:
            with translated(self._cluster):
                self._known = set(self._client.topics())
            missing = topics - self._known
            check_topics(self._cluster, self._client, missing)
            self._known |= missing

    def add(self, positions: Mapping[Partition, int]) -> None:
        positions_now = {**self._fetching.positions, **positions}
        with translated(self._cluster):
            self._client.assign([TopicPartition(*each) for each in positions_now])
            for partition, offset in positions.items():
                self._client.seek(TopicPartition(*partition), offset)
        self._fetching.positions = positions_now

    def remove(self, partitions: Collection[Partition]) -> None:
        left = {each: at for each, at in self._fetching.positions.items() if each not in set(partitions)}
        with translated(self._cluster):
            self._client.assign([TopicPartition(*each) for each in left])
        self._fetching.positions = left

    def pause(self, partitions: Collection[Partition]) -> None:
        self._client.pause(*(TopicPartition(*each) for each in partitions))

    def resume(self, partitions: Collection[Partition]) -> None:
        self._client.resume(*(TopicPartition(*each) for each in partitions))

    def poll(self, wait_s: float) -> list[Records]:
        return self._fetching.poll(wait_s)

    def positions(self) -> dict[Partition, int]:
        return dict(self._fetching.positions)

    @property
    def interruptions(self) -> int:
        return self._ended.count

    def close(self) -> None:
        self._client.close(autocommit=False)


def check_topics(cluster: str, client: KafkaConsumer, topics: Iterable[str]) -> None:
    """Raises KafkaRefusal: a topic does not exist, or the user may not see it."""
    for topic in topics:
        with translated(cluster):
            known = client.partitions_for_topic(topic)
        if not known:
            raise KafkaRefusal(UNKNOWN_TOPIC_OR_PARTITION, f'kafka "{cluster}": topic {topic} does not exist there')


def reading_options(options: ReaderOptions) -> dict[str, Any]:
    """Options of every consumer."""
    return {
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "isolation_level": "read_committed" if options.committed_only else "read_uncommitted",
        "check_crcs": True,
        "max_poll_records": options.records_max,
        "max_partition_fetch_bytes": options.partition_bytes,
        "fetch_max_wait_ms": int(options.wait_s * 1000),
        "fetch_min_bytes": 1,
        "request_timeout_ms": 30_000,
        "metadata_max_age_ms": 30_000,
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
    }
