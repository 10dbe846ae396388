"""Records of a kafka-python consumer as columns: decoded ones, and those of old formats, which the library decodes."""

from typing import Any

from kafka import KafkaConsumer, TopicPartition

from common.kafka.python_client.decoded import FetchedChunk, decode_natively
from common.kafka.python_client.faults import translated
from common.kafka.records import Partition, Records

OFFSET, TIMESTAMP, KEY, VALUE, HEADERS = 3, 4, 6, 7, 8
"""Columns of the library's ConsumerRecord."""


class PythonFetching:
    """Polls one consumer.

    Attributes:
        positions: next offset per partition; whoever assigns partitions sets it.
    """

    def __init__(self, cluster: str, client: KafkaConsumer) -> None:
        self._cluster, self._client = cluster, client
        self.positions: dict[Partition, int] = {}
        self._used_up: set[Partition] = set()  # whose position may have moved without a record
        decode_natively(client, lambda key: self._used_up.add(Partition(*key)))

    def poll(self, wait_s: float) -> list[Records]:
        with translated(self._cluster):
            fetched = self._client.poll(int(wait_s * 1000))
            if not fetched:
                return self._moved()
            return [self._records(Partition(*key), records) for key, records in fetched.items()]

    def _records(self, partition: Partition, records: list[Any]) -> Records:
        next_offset = self._position(partition)
        self.positions[partition] = next_offset
        if isinstance(records[0], FetchedChunk):
            (chunk,) = records  # a partition is not fetched again before its answer is drained
            return Records(partition, next_offset, *chunk.columns)
        columns = [*zip(*records, strict=True)]
        return Records(
            partition, next_offset, columns[OFFSET], columns[TIMESTAMP], columns[KEY], columns[VALUE], columns[HEADERS]
        )

    def _moved(self) -> list[Records]:
        """Partitions that gave only what is skipped: control records and aborted transactions."""
        moved = []
        for partition in self._used_up & self.positions.keys():
            if (now := self._position(partition)) != self.positions[partition]:
                moved.append(Records(partition, now, (), (), (), (), ()))
        self._used_up.clear()
        self.positions.update((each.partition, each.next_offset) for each in moved)
        return moved

    def _position(self, partition: Partition) -> int:
        # The library's own position() looks at all partitions each time. It is known after seek().
        state = self._client._subscription.assignment.get(TopicPartition(*partition))
        if state is None or state.position is None:  # a group has taken it, or has not placed it yet
            return self.positions[partition]
        offset: int = state.position.offset
        return offset
