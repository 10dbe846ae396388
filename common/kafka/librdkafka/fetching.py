"""Messages of a librdkafka consumer as columns, with the positions that its events tell."""

from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaError

from common.kafka.errors import KafkaFault, PositionOutOfRange
from common.kafka.librdkafka.faults import fault_of
from common.kafka.records import Partition, Records

_PASSING = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._MAX_POLL_EXCEEDED,  # of a group: on_lost tells it
)
"""Errors that the library gets over by itself."""
_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class LibrdkafkaFetching:
    """Polls one consumer.

    Attributes:
        positions: next offset per partition; whoever assigns partitions sets it.
    """

    def __init__(self, cluster: str, client: Consumer, records_max: int) -> None:
        self._cluster, self._client, self._max = cluster, client, records_max
        self._fault: KafkaFault | None = None
        self.positions: dict[Partition, int] = {}

    def restart(self, positions: dict[Partition, int]) -> None:
        self.positions, self._fault = positions, None

    def poll(self, wait_s: float) -> list[Records]:
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault
        # consume() would wait for all records that it may return, so only the first is waited for.
        first = self._client.poll(wait_s)
        if first is None:
            return []
        before = self.positions
        messages = self._client.consume(self._max - 1, 0)
        # A rebalance in consume() makes new positions, and the library drops what it has of the old ones. So does this.
        return self._grouped([first, *messages] if self.positions is before else messages)

    def _grouped(self, messages: list[Any]) -> list[Records]:
        groups: dict[Partition, list[Any]] = defaultdict(list)
        ends: dict[Partition, int] = {}
        for message in messages:
            error = message.error()
            if error is None:
                groups[Partition(message.topic(), message.partition())].append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[Partition(message.topic(), message.partition())] = message.offset()
            elif error.code() not in _PASSING:
                self._fault = self._fault_of(message)
        found = []
        for partition, group in groups.items():
            next_offset = max(group[-1].offset() + 1, ends.pop(partition, 0))
            found.append(_columns(partition, next_offset, group))
        found += [
            Records(partition, end, (), (), (), (), ())
            for partition, end in ends.items()
            if end > self.positions.get(partition, end)
        ]
        self.positions.update((each.partition, each.next_offset) for each in found)
        if self._fault is not None and not found:
            fault, self._fault = self._fault, None
            raise fault
        return found

    def _fault_of(self, message: Any) -> KafkaFault:
        error, topic = message.error(), message.topic()
        if topic is None:
            return fault_of(self._cluster, error)
        partition = Partition(topic, message.partition())
        if error.code() in _OUT_OF_RANGE:
            at = self.positions.get(partition, message.offset())
            where = f"{topic} {partition.number}"
            sentence = f'kafka "{self._cluster}": {where}: there is no offset {at} (any more): {error.str()}'
            return PositionOutOfRange(partition, sentence)
        return fault_of(self._cluster, error, f"{topic} {partition.number}: ", topic)


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
