"""A batch source of Spark for records of a Kafka topic, with the ids and keys that their copies in the engine have.

It uses Penstock's own Kafka drivers, so no jar is needed, and the copier's own rules.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from common.kafka.base import PartitionReader, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import open_driver
from common.kafka.records import Partition, Records
from kafka_bridge.copy_in.messages import RecordPlace, message_id, message_key
from pipeline.errors import CallRefused

FORMAT = "penstock-kafka-records"
SCHEMA = "id STRING, key STRING, body BINARY, queue INT, offset LONG"
POLL_S, SILENT_POLLS_MAX = 0.2, 150


@dataclass(frozen=True)
class KafkaLogin:
    """How a cluster is reached. It holds no secret, so it may be in a plan; the files must be on every worker."""

    bootstrap: str
    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    user: str = ""
    password_file: str = ""
    ca_file: str = ""

    def connection(self) -> KafkaConnection:
        return KafkaConnection(
            "kafka", tuple(each.strip() for each in self.bootstrap.split(",")), self.protocol, self.mechanism, self.user,
            Path(self.password_file).read_text().strip() if self.password_file else "",
            Path(self.ca_file) if self.ca_file else None,
        )  # fmt: skip


@dataclass(frozen=True)
class PartitionSpan(InputPartition):
    """Records of one partition of a topic, from `first` to before `end`."""

    number: int
    first: int
    end: int


class KafkaRecordsSource(DataSource):
    """Options: topic, topicId (hexadecimal), login and spans (JSON)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return KafkaRecordsReader(dict(self.options))


class KafkaRecordsReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._topic, self._topic_id = options["topic"], bytes.fromhex(options["topicid"])
        self._login = KafkaLogin(**json.loads(options["login"]))
        self._spans = [PartitionSpan(*each) for each in json.loads(options["spans"])]

    def partitions(self) -> Sequence[InputPartition]:
        return self._spans

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, PartitionSpan)
        reader = open_driver().reader(self._login.connection(), ReaderOptions())
        try:
            for records in fetched(reader, Partition(self._topic, partition.number), partition):
                yield self._batch(records, partition)
        finally:
            reader.close()

    def _batch(self, records: Records, span: PartitionSpan) -> pa.RecordBatch:
        kept = [index for index, offset in enumerate(records.offsets) if span.first <= offset < span.end]
        keys = [message_key(records.keys[index]) for index in kept]
        ids = [
            message_id(records.headers[index], RecordPlace(self._topic_id, span.number, records.offsets[index]))
            for index in kept
        ]
        return pa.RecordBatch.from_arrays(
            [
                pa.array([each.decode() for each in ids], pa.string()),
                pa.array([None if each is None else each.decode() for each in keys], pa.string()),
                pa.array([records.values[index] for index in kept], pa.binary()),
                pa.array([span.number] * len(kept), pa.int32()),
                pa.array([records.offsets[index] for index in kept], pa.int64()),
            ],
            names=["id", "key", "body", "queue", "offset"],
        )


def fetched(reader: PartitionReader, partition: Partition, span: PartitionSpan) -> Iterator[Records]:
    """The committed records of a span; the last fetch may pass its end.

    Raises:
        PositionOutOfRange: retention has deleted the beginning meanwhile.
        CallRefused: nothing comes for 30 s.
    """
    reader.assign({partition: span.first})
    at, silent = span.first, 0
    while at < span.end:
        found = reader.poll(POLL_S)
        for records in found:
            if records.offsets:
                yield records
        following = reader.positions().get(partition, at)
        silent = 0 if found or following != at else silent + 1
        if silent > SILENT_POLLS_MAX:
            raise CallRefused(
                f"kafka topic {partition.topic} partition {partition.number}: no record after offset {at} for "
                f"{POLL_S * SILENT_POLLS_MAX:.0f} s"
            )
        at = max(at, following)
