"""Replays an archive or a topic into a topic."""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pipeline.archive.manifest import read_manifest
from pipeline.archive.place import ArchivePlace
from pipeline.errors import ArchiveDamaged
from pipeline.options import EARLIEST, StartAt, read_options
from pipeline.proxy.pulls import PositionPulls
from pipeline.replay_time import DUE
from pipeline.source.batch_reader import bounds_of, offsets_of
from pipeline.source.ranges import Offsets

FIELDS = ("key", "tag", "body", "properties")


def archived_rows(spark: SparkSession, url: str, topic: str) -> DataFrame:
    """The rows of a topic by the manifest: files that no entry names are left out. Raises ArchiveDamaged without a row."""
    place = ArchivePlace(url)
    files = [name for entry in read_manifest(place, [topic]) for name in entry.files]
    if not files:
        raise ArchiveDamaged(f"archive {url}: has nothing of topic {topic}")
    paths = [f"{url.rstrip('/')}/{name}" for name in files]
    # Spark would read a topic that is named like a number or a date as one.
    return spark.read.option("basePath", url).parquet(*paths).withColumn("topic", F.lit(topic))


def stored_rows(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The rows of topics by the options of a read. Their ends are fixed now, so that a job that reads twice sees equal rows."""
    chosen = read_options(options)
    with PositionPulls(chosen.endpoints) as pulls:
        bounds = bounds_of(pulls, chosen)
        start = offsets_of(pulls, chosen.start or StartAt(EARLIEST), bounds)
        end = offsets_of(pulls, chosen.end, bounds, is_end=True)
    fixed = {"start": _text(start), "end": _text(end)}
    return spark.read.format("penstock").options(**{**options, **fixed}).load()


def rows_to_replay(rows: DataFrame, where: str, keep_ids: bool, changes: Mapping[str, str] | None = None) -> DataFrame:
    """The rows as the sink takes them, those that a condition of Spark's SQL holds for.

    Args:
        rows: of an archive, of a topic, or either with the times of a replay (`timed`), which then stay in their order.
        keep_ids: messages keep their ids; else an id is made of topic, queue and offset, so it is new and repeatable.
        changes: expressions of Spark's SQL for some of FIELDS; they see the row as it was archived.
    """
    chosen = rows.where(where) if where else rows
    chosen = chosen.withColumns({name: F.expr(sql) for name, sql in (changes or {}).items()})
    own = ["id"] if keep_ids else ["topic AS source_topic", "queue AS source_queue", "offset AS source_offset"]
    if DUE in rows.columns:
        return chosen.selectExpr(*FIELDS, *own, DUE)
    return chosen.sortWithinPartitions("topic", "queue", "offset").selectExpr(*FIELDS, *own)


def replay(rows: DataFrame, options: Mapping[str, str], keep_ids: bool, rate: int = 0) -> int:
    """Write the rows and return their number; a replay that failed may be run again while the ids are in the target's
    window.

    Args:
        rate: messages per second of the whole job, at least one per task that runs at a time; 0: no limit.
    """
    more = {"idColumn": "id"} if keep_ids else {}
    if DUE in rows.columns:
        more["dueColumn"] = DUE
    if rate:
        at_a_time = min(rows.rdd.getNumPartitions(), rows.sparkSession.sparkContext.defaultParallelism)
        more["messagesPerSecondPerTask"] = str(max(1, rate // max(1, at_a_time)))
    counted = Observation()
    observed = rows.observe(counted, F.count(F.lit(1)).alias("rows"))
    observed.write.format("penstock").options(**options, **more).mode("append").save()
    return int(counted.get["rows"])


def _text(offsets: Offsets) -> str:
    """Offsets as the options take them."""
    found: dict[str, dict[str, int]] = {}
    for each, offset in offsets.items():
        found.setdefault(each.topic, {})[str(each.queue)] = offset
    return json.dumps(found)
