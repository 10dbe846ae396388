"""The sides of a comparison as tables: a topic of the engine, an archive of it, and a table of what was sent."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from pipeline.archive.manifest import read_manifest
from pipeline.archive.place import ArchivePlace
from pipeline.errors import OptionsError
from pipeline.options import EARLIEST, StartAt, read_options
from pipeline.proxy.pulls import PositionPulls
from pipeline.proxy.topics import QueueBounds, queue_bounds
from pipeline.reconcile.spans import QueueSpan, QueueSpans, archived_spans, common_spans, is_within
from pipeline.replay import archived_rows
from pipeline.source.batch_reader import offsets_of

ID, QUEUE, OFFSET, IS_JUDGED = "id", "queue", "offset", "is_judged"
HASH = "hash"
FIELDS = ("key", "tag", "body", "properties")
"""Of a message; a comparison takes those that both sides have."""
SENT_TYPES: dict[str, tuple[type[DataType], ...]] = {
    ID: (StringType,), "key": (StringType,), "tag": (StringType,), "body": (StringType, BinaryType),
    "properties": (MapType,), HASH: (StringType,),
}  # fmt: skip
JSON_SCHEMA = "id STRING, key STRING, tag STRING, body STRING, properties MAP<STRING, STRING>, hash STRING"
JSON_ENDINGS = (".json", ".jsonl", ".ndjson")
JSON_ROWS_READ = 1000
"""Rows of JSON lines that tell which columns there are."""


class ComparedSide(ABC):
    """
    Attributes:
        name: as reports call it.
        fields: columns of a message that it has.
        notes: sentences on what is not compared.
    """

    def __init__(self, name: str, fields: tuple[str, ...], notes: tuple[str, ...] = ()) -> None:
        self.name, self.fields, self.notes = name, fields, notes

    @abstractmethod
    def rows(self, spark: SparkSession, *, is_wide: bool) -> DataFrame:
        """The messages, with columns id, the fields, queue, offset and is_judged.

        Args:
            is_wide: with messages outside what is judged: the other copy of a judged message may lie there.
        """

    @abstractmethod
    def described(self) -> str:
        """The offsets that are judged, for people."""


class EngineRows(ComparedSide):
    """A topic, read through consumer proxies."""

    def __init__(self, options: Mapping[str, str], topic: str, spans: QueueSpans, notes: tuple[str, ...] = ()) -> None:
        super().__init__("engine", FIELDS, notes)
        self._topic, self.spans = topic, spans
        self._options = {key: value for key, value in options.items() if key not in ("start", "end", "topics")}

    def rows(self, spark: SparkSession, *, is_wide: bool) -> DataFrame:
        spans = self.spans if not is_wide else self._all()
        # A queue that is not judged has a range without a message: a read needs an offset for every queue.
        asked = {queue: spans.get(queue, QueueSpan(0, 0)) for queue in self._all()}
        places = {
            "start": json.dumps({self._topic: {str(queue): span.first for queue, span in asked.items()}}),
            "end": json.dumps({self._topic: {str(queue): span.end for queue, span in asked.items()}}),
            "columns": ",".join((QUEUE, OFFSET, ID, *FIELDS)),
            "minPartitions": str(spark.sparkContext.defaultParallelism),
        }
        read = spark.read.format("penstock").options(topics=self._topic, **self._options, **places).load()
        return read.withColumn(IS_JUDGED, is_within(self.spans) if is_wide else F.lit(True))

    def described(self) -> str:
        return described_spans(self.spans)

    def _all(self) -> QueueSpans:
        bounds = engine_bounds(self._options, self._topic)
        return {queue: QueueSpan(each.first, each.end) for queue, each in bounds.items()}


class ArchiveRows(ComparedSide):
    """What an archive has of a topic."""

    def __init__(self, url: str, topic: str, spans: QueueSpans | None = None) -> None:
        super().__init__("archive", FIELDS)
        self._url, self._topic = url, topic
        self.spans = spans if spans is not None else archived_spans(read_manifest(ArchivePlace(url), [topic]))

    def rows(self, spark: SparkSession, *, is_wide: bool) -> DataFrame:
        found = archived_rows(spark, self._url, self._topic).withColumn(IS_JUDGED, is_within(self.spans))
        return found if is_wide else found.where(IS_JUDGED)

    def described(self) -> str:
        return described_spans(self.spans)


class SentRows(ComparedSide):
    """A table of what was sent: Parquet, or JSON lines. It has an id per row, and fields or a hash of the body."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._table, names = _sent_table(spark, path)
        super().__init__("sent", tuple(each for each in (*FIELDS, HASH) if each in names))

    def rows(self, spark: SparkSession, *, is_wide: bool) -> DataFrame:
        return self._table.select(
            ID, *self.fields, F.lit(None).cast("int").alias(QUEUE), F.lit(None).cast("long").alias(OFFSET),
            F.lit(True).alias(IS_JUDGED),
        )  # fmt: skip

    def described(self) -> str:
        return "all rows"


def engine_rows(options: Mapping[str, str], topic: str) -> EngineRows:
    """A topic from `start` to `end` of the options. Raises OptionsError, CallRefused."""
    return EngineRows(options, topic, asked_spans(options, topic)[0])


def engine_and_archive(options: Mapping[str, str], topic: str, url: str) -> tuple[EngineRows, ArchiveRows]:
    """Both sides, judged where both have offsets: neither retention nor a prune is a difference.

    Raises:
        NothingToCompare; OptionsError, CallRefused, ArchiveDamaged.
    """
    archived = archived_spans(read_manifest(ArchivePlace(url), [topic]))
    asked, bounds = asked_spans(options, topic)
    spans, notes = common_spans(asked, archived, bounds)
    return EngineRows(options, topic, spans, tuple(notes)), ArchiveRows(url, topic, spans)


def asked_spans(options: Mapping[str, str], topic: str) -> tuple[QueueSpans, dict[int, QueueBounds]]:
    """The spans that `start` and `end` name now, and the bounds of all queues."""
    chosen = read_options({**options, "topics": topic})
    with PositionPulls(chosen.endpoints) as pulls:
        bounds = queue_bounds(pulls, [topic])
        start = offsets_of(pulls, chosen.start or StartAt(EARLIEST), bounds)
        end = offsets_of(pulls, chosen.end, bounds, is_end=True)
    spans = {each.queue: QueueSpan(max(start[each], bounds[each].first), end[each]) for each in bounds}
    kept = {queue: span for queue, span in spans.items() if span.first < span.end}
    return kept, {each.queue: found for each, found in bounds.items()}


def engine_bounds(options: Mapping[str, str], topic: str) -> dict[int, QueueBounds]:
    with PositionPulls(read_options({**options, "topics": topic}).endpoints) as pulls:
        return {each.queue: found for each, found in queue_bounds(pulls, [topic]).items()}


def described_spans(spans: Mapping[int, QueueSpan]) -> str:
    shown = [f"queue {queue}: {span.first:,} to {span.end:,}" for queue, span in sorted(spans.items())[:8]]
    return "; ".join(shown) + (f"; and {len(spans) - 8} more queues" if len(spans) > 8 else "")


@dataclass(frozen=True)
class ContentRule:
    """What makes the content of a message in a comparison.

    Attributes:
        fields: compared as they are.
        is_hashed: the SHA-256 of the body is compared in place of the body.
    """

    fields: tuple[str, ...]
    is_hashed: bool = False

    @property
    def described(self) -> str:
        return ", ".join([*self.fields, *(["SHA-256 of the body"] if self.is_hashed else [])]) or "ids only"

    def columns(self, side: ComparedSide) -> list[Column]:
        """Columns whose hash is that of the content. Null differs from empty, but for a body."""
        found = []
        for name in self.fields:
            if name == "body":
                found.append(F.coalesce(F.col(name).cast("binary"), F.lit(b"")))
            else:
                column = F.array_sort(F.map_entries(name)) if name == "properties" else F.col(name)
                found += [F.isnull(name), column]
        if self.is_hashed:
            body = F.coalesce(F.col("body").cast("binary"), F.lit(b""))
            found.append(F.lower(HASH) if HASH in side.fields else F.sha2(body, 256))
        return found or [F.lit(0)]


def content_rule(left: ComparedSide, right: ComparedSide) -> ContentRule:
    """The fields of both sides; the hash of the body where a side has only that."""
    both = tuple(each for each in FIELDS if each in left.fields and each in right.fields)
    return ContentRule(both, "body" not in both and HASH in (*left.fields, *right.fields))


def _sent_table(spark: SparkSession, path: str) -> tuple[DataFrame, set[str]]:
    """The table and its columns that are compared. Raises OptionsError."""
    if path.lower().endswith(JSON_ENDINGS):
        rows = spark.read.text(path).limit(JSON_ROWS_READ).collect()
        names = {name for row in rows for name in _names(path, row.value)}
        found = spark.read.schema(JSON_SCHEMA).option("mode", "FAILFAST").json(path)
        schema = StructType([field for field in found.schema.fields if field.name in names])
    else:
        found = spark.read.parquet(path)
        schema, names = found.schema, set(found.columns)
    faults = [] if ID in names else [f"{path}: column id: missing: give one id per row"]
    for field in schema.fields:
        allowed = SENT_TYPES.get(field.name)
        if allowed and not isinstance(field.dataType, allowed):
            wanted = " or ".join(each.typeName() for each in allowed)
            faults.append(f"{path}: column {field.name}: type {field.dataType.simpleString()}: use {wanted}")
    if faults:
        raise OptionsError(faults)
    return found, names & SENT_TYPES.keys()


def _names(path: str, line: str) -> list[str]:
    try:
        return list(dict(json.loads(line)))
    except (ValueError, TypeError) as error:
        raise OptionsError([f"{path}: {line[:60]!r}: use one JSON object per line"]) from error
