"""Measures the traffic of topics with Spark: one pass over the messages, then small tables."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipeline.archive.manifest import read_manifest
from pipeline.archive.place import ArchivePlace
from pipeline.errors import ArchiveDamaged
from pipeline.replay import archived_rows
from pipeline.traffic.figures import NamedCount, TopicKeys, TopicTraffic, TrafficFigures, TrafficStep
from pipeline.traffic.minutes import MinuteRow
from pipeline.watching import Say, silent, watched

COLUMNS = "topic,queue,id,key,body,properties,stored_at"
STEPS_MAX = 240
STEPS_S = (60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400)
TOP_KEYS = 10
SKETCH_K = 2000
"""A KLL sketch of this size gives a percentile whose rank is wrong by some 0.2 %, and is exact for 2,000 values."""
RANKS = (0.5, 0.9, 0.99)
ASSIGNED_ID = "^[0-9a-f]{12}ff[0-9a-f]{18}$"
"""An id that a producer proxy has assigned: it begins with 48 bits of Unix milliseconds, see common/ids.py."""


def engine_messages(spark: SparkSession, options: Mapping[str, str], topics: Sequence[str]) -> DataFrame:
    """The messages of topics from `start` to `end` of the options."""
    more = {"columns": COLUMNS, "minPartitions": str(spark.sparkContext.defaultParallelism)}
    return spark.read.format("penstock").options(**options, topics=",".join(topics), **more).load()


def archived_messages(spark: SparkSession, url: str, topics: Sequence[str]) -> DataFrame:
    """The messages of topics in an archive; of all its topics, if none is named. Raises ArchiveDamaged."""
    names = topics or sorted({each.topic for each in read_manifest(ArchivePlace(url)) if each.files})
    if not names:
        raise ArchiveDamaged(f"archive {url}: has no messages")
    frames = [archived_rows(spark, url, topic).select(*COLUMNS.split(",")) for topic in names]
    return reduce(DataFrame.unionByName, frames)


def measure(
    spark: SparkSession, messages: DataFrame, folder: str, topics: Sequence[str] = (), sent_property: str = "",
    application_property: str = "", say: Say = silent,
) -> TrafficFigures:  # fmt: skip
    """Measure, and write the table `minutes` into a directory or URL, in place of an earlier one.

    Args:
        sent_property: name of a property with the time of sending in Unix milliseconds; without it, messages with ids
            that a producer proxy assigned have its time.
        application_property: name of a property with the sender's name.
    """
    rows = measured_rows(messages, sent_property, application_property).persist(StorageLevel.DISK_ONLY)
    path = f"{folder.rstrip('/')}/minutes"
    try:
        with watched(spark, "messages per minute", say):
            _by_minute(rows).write.mode("overwrite").parquet(path)
        with watched(spark, "keys and queues", say):
            keys, queues = _keys(rows), _counted(rows, "queue")
    finally:
        rows.unpersist()
    minutes = spark.read.parquet(path)
    with watched(spark, "percentiles", say):
        return _figures(minutes, keys, queues, topics)


def measured_rows(messages: DataFrame, sent_property: str, application_property: str) -> DataFrame:
    """What is counted of each message."""
    stored_ms = F.unix_millis("stored_at")
    if sent_property:
        sent_ms: Column = F.element_at("properties", sent_property).try_cast("long")
    else:
        at = F.conv(F.substring("id", 1, 12), 16, 10).try_cast("long")
        sent_ms = F.when(F.col("id").rlike(ASSIGNED_ID), at)
    application = (
        F.element_at("properties", application_property) if application_property else F.lit(None).cast("string")
    )
    return messages.select(
        "topic", "queue", "key", (F.floor(stored_ms / 60_000) * 60).cast("long").alias("minute_s"),
        application.alias("application"), F.coalesce(F.octet_length("body"), F.lit(0)).alias("size"),
        (stored_ms - sent_ms).alias("latency_ms"),
    )  # fmt: skip


def minute_rows(spark: SparkSession, folder: str, from_s: int) -> list[MinuteRow]:
    """The table `minutes` in a report's folder from a time on, of all applications together."""
    minutes = spark.read.parquet(f"{folder.rstrip('/')}/minutes").where(F.col("minute_s") >= from_s)
    summed = _summed(minutes, "topic", "minute_s")
    found = []
    for row in summed.toLocalIterator():
        p50, _, p99 = row["quantiles"] or (None,) * 3
        found.append(MinuteRow(row["topic"], row["minute_s"], row["messages"], row["size_bytes"], p50, p99))
    return found


def _by_minute(rows: DataFrame) -> DataFrame:
    return rows.groupBy("topic", "application", "minute_s").agg(
        F.count("*").alias("messages"), F.sum("size").cast("long").alias("size_bytes"),
        F.count("latency_ms").alias("timed"), F.max("latency_ms").alias("max_ms"),
        F.kll_sketch_agg_bigint("latency_ms", F.lit(SKETCH_K)).alias("sketch"),
    )  # fmt: skip


def _summed(minutes: DataFrame, *keys: str) -> DataFrame:
    """Sums of minutes, with percentiles of their merged sketches."""
    sketch = F.kll_merge_agg_bigint(F.when(F.col("timed") > 0, F.col("sketch")))
    merged = minutes.groupBy(*keys).agg(
        F.sum("messages").alias("messages"), F.sum("size_bytes").alias("size_bytes"), F.sum("timed").alias("timed"),
        F.max("max_ms").alias("max_ms"), sketch.alias("sketch"),
    )  # fmt: skip
    ranks = F.array(*[F.lit(rank) for rank in RANKS])
    quantiles = F.when(F.col("timed") > 0, F.kll_sketch_get_quantile_bigint("sketch", ranks))
    return merged.withColumn("quantiles", quantiles).drop("sketch")


def _figures(
    minutes: DataFrame, keys: Mapping[str, TopicKeys], queues: dict[str, list[NamedCount]], topics: Sequence[str]
) -> TrafficFigures:
    span = minutes.agg(F.min("minute_s").alias("first"), F.max("minute_s").alias("last")).collect()[0]
    step_s = step_of(0 if span["first"] is None else span["last"] - span["first"] + 60)
    stepped = minutes.withColumn("at_s", F.floor(F.col("minute_s") / step_s) * step_s)
    steps: dict[str, list[TrafficStep]] = {}
    for row in _summed(stepped, "topic", "at_s").orderBy("topic", "at_s").collect():
        p50, _, p99 = row["quantiles"] or (None,) * 3
        steps.setdefault(row["topic"], []).append(
            TrafficStep(row["at_s"], row["messages"], row["size_bytes"], p50, p99)
        )
    every = minutes.groupBy("topic", "minute_s").agg(
        F.sum("messages").alias("messages"), F.sum("size_bytes").alias("size_bytes")
    )
    peaks = every.groupBy("topic").agg(
        F.max("messages").alias("messages"), F.max("size_bytes").alias("size_bytes"),
        F.min("minute_s").alias("first"), F.max("minute_s").alias("last"),
    )  # fmt: skip
    peak = {row["topic"]: row for row in peaks.collect()}
    applications = _named(minutes.where("application IS NOT NULL").groupBy("topic", "application").agg(
        F.sum("messages").alias("messages")).orderBy(F.desc("messages")).collect(), "application")  # fmt: skip
    found = []
    for row in _summed(minutes, "topic").collect():
        topic, (p50, p90, p99) = row["topic"], row["quantiles"] or (None,) * 3
        keyed = keys.get(topic, TopicKeys(0, 0, []))
        found.append(
            TopicTraffic(
                topic, row["messages"], row["size_bytes"], peak[topic]["first"], peak[topic]["last"],
                peak[topic]["messages"], peak[topic]["size_bytes"], row["timed"], p50, p90, p99, row["max_ms"],
                keyed.distinct, row["messages"] - keyed.messages, queues.get(topic, []), keyed.top,
                applications.get(topic, []), steps[topic],
            )
        )  # fmt: skip
    found.sort(key=lambda each: (-each.size_bytes, each.topic))
    return TrafficFigures(step_s, found, sorted(set(topics) - {each.topic for each in found}))


def step_of(span_s: int) -> int:
    """The shortest step that makes at most STEPS_MAX of a span."""
    return next((each for each in STEPS_S if span_s <= each * STEPS_MAX), STEPS_S[-1])


def _keys(rows: DataFrame) -> dict[str, TopicKeys]:
    """The keys of each topic that has messages with a key."""
    counted = rows.where("key IS NOT NULL").groupBy("topic", "key").agg(F.count("*").alias("messages"))
    topic = Window.partitionBy("topic")
    ranked = counted.withColumns(
        {
            "rank": F.row_number().over(topic.orderBy(F.desc("messages"), "key")),
            "keys": F.count("*").over(topic),
            "keyed": F.sum("messages").over(topic),
        }
    )
    found = ranked.where(F.col("rank") <= TOP_KEYS).orderBy("topic", "rank").collect()
    top = _named(found, "key")
    return {row["topic"]: TopicKeys(row["keys"], row["keyed"], top[row["topic"]]) for row in found if row["rank"] == 1}


def _counted(rows: DataFrame, name: str) -> dict[str, list[NamedCount]]:
    return _named(
        rows.groupBy("topic", name).agg(F.count("*").alias("messages")).orderBy("topic", name).collect(), name
    )


def _named(rows: Sequence[Any], name: str) -> dict[str, list[NamedCount]]:
    found: dict[str, list[NamedCount]] = {}
    for row in rows:
        found.setdefault(row["topic"], []).append(NamedCount(str(row[name]), row["messages"]))
    return found
