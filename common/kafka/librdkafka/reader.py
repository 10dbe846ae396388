"""Reader of partitions over librdkafka, which gives one object per record; they become columns here."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from common.kafka.base import PartitionReader, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.errors import KafkaFault, PositionOutOfRange
from common.kafka.librdkafka.faults import fault_of, translated
from common.kafka.librdkafka.options import common_options, opened
from common.kafka.records import Partition, Records

METADATA_WAIT_S = 5.0
_PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)
"""Errors that the library gets over by itself."""
_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class LibrdkafkaReader(PartitionReader):
    def __init__(self, connection: KafkaConnection, options: ReaderOptions) -> None:
        self._cluster, self._options = connection.name, options
        self._positions: dict[Partition, int] = {}
        self._fault: KafkaFault | None = None
        settings = {**common_options(connection), **_library_options(options)}
        self._client, self._last = opened(connection, Consumer, settings, lambda client: client.poll(0))

    def assign(self, positions: Mapping[Partition, int]) -> None:
        for topic in {each.topic for each in positions}:
            with translated(self._cluster):
                found = self._client.list_topics(topic, METADATA_WAIT_S).topics[topic]
            if found.error is not None:
                raise fault_of(self._cluster, found.error, f"topic {topic}: ")
        with translated(self._cluster):
            self._client.assign([TopicPartition(*each, at) for each, at in positions.items()])
        self._positions, self._fault = dict(positions), None

    def pause(self, partitions: Collection[Partition]) -> None:
        self._client.pause([TopicPartition(*each) for each in partitions])

    def resume(self, partitions: Collection[Partition]) -> None:
        self._client.resume([TopicPartition(*each) for each in partitions])

    def poll(self, wait_s: float) -> list[Records]:
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault
        # consume() would wait for all records that it may return, so only the first is waited for.
        first = self._client.poll(wait_s)
        if first is None:
            return []
        messages = [first, *self._client.consume(self._options.records_max - 1, 0)]
        return self._grouped(messages)

    def _grouped(self, messages: list[Any]) -> list[Records]:
        groups: dict[Partition, list[Any]] = defaultdict(list)
        ends: dict[Partition, int] = {}
        for message in messages:
            partition = Partition(message.topic(), message.partition())
            error = message.error()
            if error is None:
                groups[partition].append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[partition] = message.offset()
            elif error.code() not in _PASSING:
                self._fault = self._fault_of(partition, message)
        found = []
        for partition, group in groups.items():
            next_offset = max(group[-1].offset() + 1, ends.pop(partition, 0))
            found.append(_columns(partition, next_offset, group))
        found += [
            Records(partition, end, (), (), (), (), ())
            for partition, end in ends.items()
            if end > self._positions.get(partition, end)
        ]
        self._positions.update((each.partition, each.next_offset) for each in found)
        if self._fault is not None and not found:
            fault, self._fault = self._fault, None
            raise fault
        return found

    def _fault_of(self, partition: Partition, message: Any) -> KafkaFault:
        error = message.error()
        topic, number = partition
        if error.code() in _OUT_OF_RANGE:
            at = self._positions.get(partition, message.offset())
            sentence = f'kafka "{self._cluster}": {topic} {number}: there is no offset {at} (any more): {error.str()}'
            return PositionOutOfRange(partition, sentence)
        return fault_of(self._cluster, error, f"{topic} {number}: ")

    def positions(self) -> dict[Partition, int]:
        return dict(self._positions)

    def close(self) -> None:
        self._client.close()


def _columns(partition: Partition, next_offset: int, group: list[Any]) -> Records:
    return Records(
        partition,
        next_offset,
        [each.offset() for each in group],
        [each.timestamp()[1] for each in group],
        [each.key() for each in group],
        [each.value() for each in group],
        [each.headers() or () for each in group],
    )


def _library_options(options: ReaderOptions) -> dict[str, Any]:
    return {
        "group.id": "penstock-reader",  # the library wants one; nothing joins or commits it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed" if options.committed_only else "read_uncommitted",
        "check.crcs": True,
        "enable.partition.eof": True,  # the only way to see that control records were passed
        "fetch.message.max.bytes": options.partition_bytes,
        "fetch.wait.max.ms": 100,
        "fetch.min.bytes": 1,
        "queued.max.messages.kbytes": 32 << 10,
    }
