"""Exactly-once copy between topics: each message of `ratings` is in `ratings-copy` once, however often this is killed.

penstock topic create ratings
penstock topic create ratings-copy --id-window-s 86400
python -m pipeline.examples.exact_copy
"""

from pyspark.sql import SparkSession

from pipeline.examples.setting import ExampleSetting, send_ratings, setting_of_arguments
from pipeline.session import local_session


def copy(spark: SparkSession, setting: ExampleSetting, topic: str, target: str) -> None:
    """Copy all messages that are there. Their ids are made of topic, queue and offset, so a repeat stores none twice."""
    query = (
        spark.readStream.format("penstock")
        .options(**setting.read(topic, maxMessagesPerTrigger="500"))
        .load()
        .writeStream.format("penstock")
        .options(**setting.write(target))
        .option("checkpointLocation", setting.checkpoint(target))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    own, session = setting_of_arguments("Exactly-once copy."), local_session("exact copy")
    send_ratings(session, own, "ratings")
    copy(session, own, "ratings", "ratings-copy")
