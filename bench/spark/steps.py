"""The work that is measured: a write, a batch read, a stream and an archive, each of one topic."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from bench.spark.sides import SparkSide
from pipeline.archive.archive import plan_archive, run_archive

BODY_BYTES = 200
PER_TRIGGER = 250_000
Step = Callable[[SparkSession, SparkSide, str, int], None]


def write(spark: SparkSession, side: SparkSide, topic: str, messages: int) -> None:
    body = f"CAST(lpad(CAST(id AS STRING), {BODY_BYTES}, 'x') AS BINARY) AS body"
    rows = spark.range(messages).selectExpr("concat('key-', id % 1000) AS key", body).selectExpr(*side.sent)
    rows.write.format(side.form).options(**side.writing(topic)).mode("append").save()


def read(spark: SparkSession, side: SparkSide, topic: str, messages: int) -> None:
    rows = spark.read.format(side.form).options(**side.reading(topic)).load()
    rows.selectExpr(*side.wanted).write.format("noop").mode("overwrite").save()


def stream(spark: SparkSession, side: SparkSide, topic: str, messages: int) -> None:
    start = "start" if side.form == "penstock" else "startingOffsets"
    more = {side.limit: str(PER_TRIGGER), start: "earliest"}
    rows = spark.readStream.format(side.form).options(**side.reading(topic), **more).load().selectExpr(*side.wanted)
    with _folder() as folder:
        query = rows.writeStream.format("noop").option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()


def archive(spark: SparkSession, side: SparkSide, topic: str, messages: int) -> None:
    options = {name: value for name, value in side.reading(topic).items() if name != "columns"}
    with _folder() as folder:
        entries = run_archive(spark, options, folder, plan_archive(options, folder))
    assert sum(each.count for each in entries) == messages


@contextmanager
def _folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-spark-") as folder:
        yield folder


COMPARED: dict[str, Step] = {"write": write, "batch read": read, "stream": stream}
"""The steps that are measured on both sides."""
