"""Sessions with state: how many movies each user rates in one sitting, from topic `ratings`.

penstock topic create ratings
python -m pipeline.examples.sessions
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.examples.setting import RATING, ExampleSetting, send_ratings, setting_of_arguments
from pipeline.session import local_session


def sessions(spark: SparkSession, setting: ExampleSetting, topic: str, table: str = "sessions") -> DataFrame:
    """One row per user and session, which ends after 30 minutes without a rating; returns the table.

    The state of all sessions is in the checkpoint. With output mode append and a watermark it would have only those
    that may still grow, and the table each session when it has ended.
    """
    messages = spark.readStream.format("penstock").options(**setting.read(topic, body="string", columns="body")).load()
    rated = messages.select(F.from_json("body", RATING).alias("r")).select(
        "r.user", F.timestamp_seconds("r.rated_s").alias("at")
    )
    grouped = rated.groupBy("user", F.session_window("at", "30 minutes").alias("session"))
    found = grouped.agg(F.count("*").alias("movies")).select("user", "session.start", "session.end", "movies")
    path = f"{setting.folder}/{table}"
    query = (
        found.writeStream.outputMode("complete")
        .foreachBatch(lambda rows, number: rows.write.mode("overwrite").parquet(path))
        .option("checkpointLocation", setting.checkpoint(table))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.read.parquet(path)


if __name__ == "__main__":
    own, session = setting_of_arguments("Sessions of ratings."), local_session("sessions")
    send_ratings(session, own, "ratings")
    sessions(session, own, "ratings").orderBy("movies", ascending=False).show(10)
