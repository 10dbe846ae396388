"""One PRODUCE as columns for a Kafka client, and its answer from their results. The reference of `_batch.pyx`."""

from collections import Counter
from collections.abc import Callable

from common.contract import Code
from common.kafka.errors import KafkaFault
from common.kafka.records import NO_OFFSET, Headers, OutgoingRecords, ProduceResults
from common.keyhash import queue_of
from engine.link.produce import ANY_PARTITION, ProducedMessage, ProducedResult, decode_produce, encode_produced
from kafka_bridge.mapping import UnmappableMessage, record_of

_INVALID, _UNAVAILABLE = int(Code.INVALID), int(Code.UNAVAILABLE)


class OutgoingBatch:
    """A request. `map`, and then `settle` with the results of what it returned; or `refused` in place of both.

    Raises:
        PayloadError: the bytes are no PRODUCE.
    Attributes:
        size: bytes of the request.
        counts: messages by code, once there is an answer.
    """

    def __init__(self, payload: bytes) -> None:
        request = decode_produce(payload)
        self.cluster, self.patience_ms, self.size = request.cluster, request.patience_ms, len(payload)
        self._topics, self._messages = request.topics, request.messages
        self.counts: dict[int, int] = {}
        self._partition_counts: dict[int, int] = {}
        self._faults: dict[int, str] = {}
        self._results: list[ProducedResult | None] = [None] * len(request.messages)
        self._indexes: list[int] = []
        self._names: list[str] = []
        self._partitions: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[Headers] = []

    def map(self, partitions_of: Callable[[str], int], now_ms: int, turn: int) -> OutgoingRecords:
        """The messages that can be records; the others have their results already.

        Args:
            partitions_of: number of a topic's partitions; may block. Raises KafkaFault.
            turn: chooses the partition of messages without a key, one per batch and topic.
        """
        for index, message in enumerate(self._messages):
            self._add(index, message, partitions_of, turn)
        times = [now_ms] * len(self._names)
        return OutgoingRecords(self._names, self._partitions, times, self._keys, self._values, self._headers)

    def _add(self, index: int, message: ProducedMessage, partitions_of: Callable[[str], int], turn: int) -> None:
        count = self._partition_counts.get(message.topic) or self._count(message.topic, partitions_of)
        if not count:
            self._results[index] = ProducedResult(_UNAVAILABLE, 0, NO_OFFSET, self._faults[message.topic])
            return
        try:
            key, value, headers = record_of(message.encoded, message.assigned_id)
        except UnmappableMessage as fault:
            self._results[index] = ProducedResult(_INVALID, 0, NO_OFFSET, str(fault))
            return
        partition = message.partition
        if partition == ANY_PARTITION:
            partition = turn % count if key is None else queue_of(key, count)
        self._indexes.append(index)
        self._names.append(self._topics[message.topic])
        self._partitions.append(partition)
        self._keys.append(key)
        self._values.append(value)
        self._headers.append(headers)

    def _count(self, topic: int, partitions_of: Callable[[str], int]) -> int:
        """Number of a topic's partitions; 0: it cannot be sent to, and `_faults` says why."""
        if topic in self._faults:
            return 0
        try:
            count = self._partition_counts[topic] = partitions_of(self._topics[topic])
        except KafkaFault as fault:
            self._faults[topic] = f"{fault}; nothing was stored"
            return 0
        return count

    def settle(self, found: ProduceResults) -> bytes:
        """The answer, once Kafka's client has told the results of the records."""
        sentences = found.sentences
        for at, index in enumerate(self._indexes):
            sentence = sentences.get(at, "") if sentences else ""
            self._results[index] = ProducedResult(found.codes[at], self._partitions[at], found.offsets[at], sentence)
        return self._answer([each for each in self._results if each is not None])

    def refused(self, code: int, sentence: str) -> bytes:
        """The answer that gives every message this code."""
        return self._answer([ProducedResult(int(code), 0, NO_OFFSET, sentence)] * len(self._messages))

    def _answer(self, results: list[ProducedResult]) -> bytes:
        self.counts = dict(Counter(each.code for each in results))
        return encode_produced(results)
