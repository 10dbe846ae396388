"""A Kafka topic as a side of a comparison."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from common.kafka.base import EARLIEST, STABLE_END, ClusterAdmin
from common.kafka.connection import connection_faults
from common.kafka.drivers import open_driver
from common.kafka.records import Partition
from pipeline.errors import OptionsError, PipelineError
from pipeline.options import EARLIEST as EARLIEST_WORD
from pipeline.options import LATEST, StartAt
from pipeline.reconcile.kafka_source import FORMAT, KafkaLogin, KafkaRecordsSource
from pipeline.reconcile.sides import IS_JUDGED, ComparedSide, described_spans
from pipeline.reconcile.spans import QueueSpan, QueueSpans, is_within

T = TypeVar("T")


class KafkaRows(ComparedSide):
    """Committed records of a topic, by its own times where `start` or `end` is a time.

    Raises:
        OptionsError: also when a place is given as offsets. PipelineError: no such topic. KafkaFault.
    """

    def __init__(self, login: KafkaLogin, topic: str, start: StartAt, end: StartAt) -> None:
        super().__init__("Kafka", ("key", "body"))
        if faults := connection_faults(login.connection()):
            raise OptionsError(faults)
        if start.offsets is not None or end.offsets is not None:
            raise OptionsError(["start and end: use earliest, latest or a time: offsets of Kafka are others"])
        self._login, self._topic = login, topic

        def look(admin: ClusterAdmin) -> tuple[bytes, QueueSpans]:
            found = admin.topics([topic]).get(topic)
            if found is None:
                raise PipelineError(f"kafka topic {topic}: it does not exist")
            places = [Partition(topic, number) for number in range(found.partitions)]
            lasts, firsts = _at(admin, places, end), _at(admin, places, start)
            return found.id.bytes, {each.number: QueueSpan(firsts[each], lasts[each]) for each in places}

        self._topic_id, spans = self._asked(look)
        self.spans = {queue: span for queue, span in spans.items() if span.first < span.end}

    def rows(self, spark: SparkSession, *, is_wide: bool) -> DataFrame:
        spark.dataSource.register(KafkaRecordsSource)
        spans = self._asked(self._whole) if is_wide else self.spans
        options = {
            "topic": self._topic, "topicId": self._topic_id.hex(), "login": json.dumps(asdict(self._login)),
            "spans": json.dumps([(queue, *span) for queue, span in spans.items()]),
        }  # fmt: skip
        found = spark.read.format(FORMAT).options(**options).load()
        return found.withColumn(IS_JUDGED, is_within(self.spans) if is_wide else F.lit(True))

    def described(self) -> str:
        return described_spans(self.spans)

    def _whole(self, admin: ClusterAdmin) -> QueueSpans:
        places = [Partition(self._topic, queue) for queue in self.spans]
        firsts, lasts = _at(admin, places, StartAt(EARLIEST_WORD)), _at(admin, places, StartAt(LATEST))
        return {each.number: QueueSpan(firsts[each], lasts[each]) for each in places}

    def _asked(self, ask: Callable[[ClusterAdmin], T]) -> T:
        with closing(open_driver().admin(self._login.connection())) as admin:
            return ask(admin)


def _at(admin: ClusterAdmin, places: list[Partition], at: StartAt) -> dict[Partition, int]:
    """The offset of each partition that a place names; after the last committed record where no record is so new."""
    ends = {each: found or 0 for each, found in admin.offsets(places, STABLE_END).items()}
    if at.word == LATEST:
        return ends
    wanted = EARLIEST if at.time_ms is None else at.time_ms
    return {each: ends[each] if found is None else found for each, found in admin.offsets(places, wanted).items()}
