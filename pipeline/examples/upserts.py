"""Upserts to Parquet: the newest rating per user and movie, kept up to date from topic `ratings`.

penstock topic create ratings
python -m pipeline.examples.upserts
"""

import uuid
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipeline.examples.setting import RATING, ExampleSetting, send_ratings, setting_of_arguments
from pipeline.session import local_session


class UpsertTable:
    """A Parquet table that each batch replaces by a new version. The file CURRENT names the one that counts.

    A row that a repeated batch brings again has the same queue and offset, and is dropped.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def read(self, spark: SparkSession) -> DataFrame | None:
        current = self._folder / "CURRENT"
        return spark.read.parquet(str(self._folder / current.read_text())) if current.exists() else None

    def upsert(self, rows: DataFrame, number: int) -> None:
        before = self.read(rows.sparkSession)
        every = rows if before is None else before.unionByName(rows)
        newest = Window.partitionBy("user", "movie").orderBy(F.desc("rated_s"), F.desc("queue"), F.desc("offset"))
        merged = every.dropDuplicates(["queue", "offset"]).withColumn("rank", F.row_number().over(newest))
        target = f"version-{number}-{uuid.uuid4().hex}"
        merged.where("rank = 1").drop("rank").write.parquet(str(self._folder / target))
        part = self._folder / "CURRENT.part"
        part.write_text(target)
        part.rename(self._folder / "CURRENT")


def upserts(spark: SparkSession, setting: ExampleSetting, topic: str, table: str = "newest-ratings") -> DataFrame:
    """Take over all messages that are there; returns the table."""
    kept, path = UpsertTable(f"{setting.folder}/{table}"), setting.checkpoint(table)
    options = setting.read(topic, body="string", columns="queue,offset,body")
    messages = spark.readStream.format("penstock").options(**options).load()
    rated = messages.select("queue", "offset", F.from_json("body", RATING).alias("r")).select("queue", "offset", "r.*")
    query = (
        rated.writeStream.foreachBatch(kept.upsert)
        .option("checkpointLocation", path)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = kept.read(spark)
    return rated.limit(0) if found is None else found


if __name__ == "__main__":
    own, session = setting_of_arguments("Newest rating per user and movie."), local_session("upserts")
    send_ratings(session, own, "ratings")
    upserts(session, own, "ratings").orderBy("user", "movie").show(10)
