"""One PRODUCE as columns for a Kafka client, and its results put together again in the order of the request."""

from collections.abc import Callable, Sequence

from common.contract import Code
from common.kafka.errors import KafkaFault
from common.kafka.records import NO_OFFSET, Headers, OutgoingRecords, ProduceResults
from common.keyhash import queue_of
from engine.link.produce import ANY_PARTITION, ProducedMessage, ProducedResult
from kafka_bridge.mapping import UnmappableMessage, record_of

_INVALID, _UNAVAILABLE = int(Code.INVALID), int(Code.UNAVAILABLE)


class OutgoingBatch:
    """The messages that can be records; the others have their results already.

    Args:
        topics: names by index.
        partitions_of: number of a topic's partitions; may block. Raises KafkaFault.
        turn: chooses the partition of messages without a key, one per batch and topic.
    """

    def __init__(
        self, messages: Sequence[ProducedMessage], topics: Sequence[str], partitions_of: Callable[[str], int],
        now_ms: int, turn: int,
    ) -> None:  # fmt: skip
        self._topics, self._ask, self._turn = topics, partitions_of, turn
        self._counts: dict[int, int] = {}
        self._faults: dict[int, str] = {}
        self.results: list[ProducedResult | None] = [None] * len(messages)
        self._indexes: list[int] = []
        self._names: list[str] = []
        self._partitions: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[Headers] = []
        for index, message in enumerate(messages):
            self._add(index, message)
        self.records = OutgoingRecords(
            self._names, self._partitions, [now_ms] * len(self._names), self._keys, self._values, self._headers
        )

    def _add(self, index: int, message: ProducedMessage) -> None:
        count = self._counts.get(message.topic) or self._count(message.topic)
        if not count:
            self.results[index] = ProducedResult(_UNAVAILABLE, 0, NO_OFFSET, self._faults[message.topic])
            return
        try:
            key, value, headers = record_of(message.encoded, message.assigned_id)
        except UnmappableMessage as fault:
            self.results[index] = ProducedResult(_INVALID, 0, NO_OFFSET, str(fault))
            return
        partition = message.partition
        if partition == ANY_PARTITION:
            partition = self._turn % count if key is None else queue_of(key, count)
        self._indexes.append(index)
        self._names.append(self._topics[message.topic])
        self._partitions.append(partition)
        self._keys.append(key)
        self._values.append(value)
        self._headers.append(headers)

    def _count(self, topic: int) -> int:
        """Number of a topic's partitions; 0: it cannot be sent to, and `_faults` says why."""
        if topic in self._faults:
            return 0
        try:
            count = self._counts[topic] = self._ask(self._topics[topic])
        except KafkaFault as fault:
            self._faults[topic] = f"{fault}; nothing was stored"
            return 0
        return count

    def settle(self, found: ProduceResults) -> list[ProducedResult]:
        """The results of all messages, once Kafka's client has told those of the records."""
        sentences = found.sentences
        for at, index in enumerate(self._indexes):
            self.results[index] = ProducedResult(
                found.codes[at], self._partitions[at], found.offsets[at], sentences.get(at, "") if sentences else ""
            )
        return [each for each in self.results if each is not None]
