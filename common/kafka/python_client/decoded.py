"""Fetched record batches of a kafka-python consumer as columns, in place of the library's objects per record.

The library fetches, follows leaders and keeps positions; it gives the bytes of a fetched partition to the class
`PartitionRecords` of its fetcher, and takes records from it. `decode_natively` puts `DecodedPartition` there. Batches of
a format before 2, which brokers keep from versions before 0.11, stay with the library.
"""

from collections.abc import Callable, Iterator
from typing import Any

from kafka import KafkaConsumer, TopicPartition, errors
from kafka.protocol.consumer import IsolationLevel

from common.kafka.native import AbortedTransaction, BatchDecoder, FetchedColumns, MalformedBatch
from common.kafka.python_client.codecs import decompress

MAGIC_AT, MAGIC = 16, 2


class FetchedChunk:
    """Columns, passed through the library as if they were so many records: iterating gives the chunk itself, once."""

    def __init__(self, columns: FetchedColumns) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator["FetchedChunk"]:
        yield self


class DecodedPartition:
    """The answer to a fetch of one partition. The names of attributes and methods are those that the fetcher uses."""

    def __init__(
        self, fetch_offset: int, topic_partition: TopicPartition, data: bytes, isolation_level: Any, aborted: Any,
        on_drain: Callable[["DecodedPartition"], None],
    ) -> None:  # fmt: skip
        self.topic_partition, self.next_fetch_offset, self.leader_epoch = topic_partition, fetch_offset, -1
        self.bytes_read = len(data)
        self._on_drain = on_drain
        committed_only = isolation_level == IsolationLevel.READ_COMMITTED
        transactions = [AbortedTransaction(each.producer_id, each.first_offset) for each in aborted or ()]
        self._decoder: Any = BatchDecoder(data, fetch_offset, committed_only, transactions, decompress)

    def __bool__(self) -> bool:
        return self._decoder is not None

    def take(self, count: int) -> FetchedChunk:
        """At most `count` records. Raises CorruptRecordError, UnsupportedCodecError."""
        decoder = self._decoder
        try:
            columns = decoder.take(count)
        except MalformedBatch as fault:
            topic, number = self.topic_partition
            raise errors.CorruptRecordError(f"{topic} {number}: {fault}") from fault
        self.next_fetch_offset, self.leader_epoch = decoder.next_offset, decoder.leader_epoch
        if decoder.is_done:
            self.drain()
        return FetchedChunk(columns)

    def drain(self) -> None:
        """Drop what was not taken."""
        if self._decoder is not None:
            self._decoder = None
            self._on_drain(self)


def decode_natively(consumer: KafkaConsumer, on_end: Callable[[TopicPartition], None]) -> None:
    """Let a consumer without deserializers give chunks.

    Args:
        on_end: called when the answer to a fetch of a partition is used up, whatever it held.
    """
    fetcher = consumer._fetcher
    original = fetcher.PartitionRecords

    def partition_records(fetch_offset: int, topic_partition: TopicPartition, records: Any, **options: Any) -> Any:
        on_drain = options["on_drain"]

        def drained(partition: Any) -> None:
            on_end(topic_partition)
            on_drain(partition)

        options["on_drain"] = drained
        data = records._buffer
        if len(data) > MAGIC_AT and data[MAGIC_AT] < MAGIC:
            return original(fetch_offset, topic_partition, records, **options)
        return DecodedPartition(
            fetch_offset, topic_partition, bytes(data), options["isolation_level"], options["aborted_transactions"],
            drained,
        )  # fmt: skip

    fetcher.PartitionRecords = partition_records
