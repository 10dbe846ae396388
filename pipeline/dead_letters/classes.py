"""Classes of a group's dead letters: those with one cause, class of reason, topic and shape."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from common.dead_letters import PROPERTY, dead_letter_topic
from pipeline.dead_letters.shapes import reason_class, shape_of
from pipeline.watching import Say, silent, watched

CLASSES_MAX = 1000
SAMPLE_BYTES = 2000
COLUMNS = "offset,id,key,body,properties,stored_at"
SAMPLE = ("offset", "id", "key", "text", "reason", "message_queue", "message_offset")


class DeadLetterSample(NamedTuple):
    """One dead letter. `text`: the first SAMPLE_BYTES of its body, as far as they are text."""

    offset: int
    id: str
    key: str | None
    text: str
    reason: str
    message_queue: int | None
    message_offset: int | None


class DeadLetterClass(NamedTuple):
    """
    Attributes:
        reason: with a placeholder for numbers and ids.
        letters: dead letters; `messages`: different messages, as a crash of the engine may store a dead letter twice.
        first_ms, last_ms: when the first and the last one were stored.
        attempts: the largest number.
        samples: the first one and the last one.
    """

    cause: str
    reason: str
    topic: str
    shape: str
    letters: int
    messages: int
    first_ms: int
    last_ms: int
    attempts: int
    samples: list[DeadLetterSample]


class DeadLetterClasses(NamedTuple):
    """The classes with the most dead letters, and the total of all dead letters and classes."""

    group: str
    letters: int
    class_count: int
    classes: list[DeadLetterClass]


def dead_letter_rows(spark: SparkSession, options: Mapping[str, str], group: str) -> DataFrame:
    """The stored dead letters of a group, whoever took them out since: acknowledgements are not part of a topic."""
    asked = {**options, "topics": dead_letter_topic(group), "columns": COLUMNS}
    rows = spark.read.format("penstock").options(**asked).load()

    def added(name: str) -> Any:
        return F.element_at("properties", PROPERTY + name)

    shape = F.udf(shape_of, "string", useArrow=False)
    of_reason = F.udf(reason_class, "string", useArrow=False)
    return rows.select(
        "offset", "id", "key", F.unix_millis("stored_at").alias("stored_ms"),
        F.coalesce(added("cause"), F.lit("")).alias("cause"), F.coalesce(added("reason"), F.lit("")).alias("reason"),
        of_reason(added("reason")).alias("reason_class"), F.coalesce(added("topic"), F.lit("")).alias("topic"),
        shape("body").alias("shape"), added("attempts").try_cast("int").alias("attempts"),
        added("queue").try_cast("int").alias("message_queue"), added("offset").try_cast("long").alias("message_offset"),
        F.substring("body", 1, SAMPLE_BYTES).alias("text"),
    )  # fmt: skip


def dead_letter_classes(spark: SparkSession, rows: DataFrame, group: str, say: Say = silent) -> DeadLetterClasses:
    """Group the dead letters. Memory: one entry per class."""
    origin = F.struct("message_queue", "message_offset")
    keys = ["cause", "reason_class", "topic", "shape"]
    by_message = rows.groupBy(*keys, origin.alias("origin")).agg(
        F.count("*").alias("count"), F.min("stored_ms").alias("first_ms"), F.max("stored_ms").alias("last_ms"),
        F.max("attempts").alias("attempts"),
        F.min_by(F.struct(*SAMPLE), "offset").alias("first"), F.max_by(F.struct(*SAMPLE), "offset").alias("last"),
    )  # fmt: skip
    grouped = by_message.groupBy(*keys).agg(
        F.sum("count").alias("count"), F.count("*").alias("messages"), F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"), F.max("attempts").alias("attempts"),
        F.min_by("first", "first.offset").alias("first"), F.max_by("last", "last.offset").alias("last"),
    )  # fmt: skip
    with watched(spark, "grouping dead letters", say):
        found = grouped.persist()
        try:
            total = found.agg(F.coalesce(F.sum("count"), F.lit(0)).alias("n"), F.count("*").alias("classes")).collect()[
                0
            ]
            largest = found.orderBy(F.desc("count"), *keys).limit(CLASSES_MAX).collect()
        finally:
            found.unpersist()
    return DeadLetterClasses(group, total.n, total.classes, [_class(row) for row in largest])


def _class(row: Any) -> DeadLetterClass:
    samples = list(dict.fromkeys(_sample(each) for each in (row["first"], row["last"])))
    return DeadLetterClass(
        row["cause"], row["reason_class"], row["topic"], row["shape"], row["count"], row["messages"], row["first_ms"],
        row["last_ms"], row["attempts"] or 0, samples,
    )  # fmt: skip


def _sample(row: Any) -> DeadLetterSample:
    values = {name: row[name] for name in SAMPLE}
    return DeadLetterSample(**{**values, "text": bytes(values["text"] or b"").decode(errors="replace")})
