"""Streaming word count: the most frequent words of the licences that PySpark ships, from topic `lines`.

penstock topic create lines
python -m pipeline.examples.word_count
"""

from pyspark.sql import DataFrame, SparkSession

from pipeline.examples.setting import ExampleSetting, send_texts, setting_of_arguments
from pipeline.session import local_session


def word_count(spark: SparkSession, setting: ExampleSetting, topic: str, table: str = "words") -> DataFrame:
    """Count the words of all messages that are there, in state that the checkpoint keeps; returns the counts."""
    lines = spark.readStream.format("penstock").options(**setting.read(topic, body="string", columns="body")).load()
    words = lines.selectExpr("explode(split(lower(body), '[^a-z]+')) AS word").where("word <> ''")
    query = (
        words.groupBy("word")
        .count()
        .writeStream.outputMode("complete")
        .foreachBatch(lambda counts, number: counts.write.mode("overwrite").parquet(f"{setting.folder}/{table}"))
        .option("checkpointLocation", setting.checkpoint(table))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.read.parquet(f"{setting.folder}/{table}")


if __name__ == "__main__":
    own, session = setting_of_arguments("Streaming word count."), local_session("word count")
    send_texts(session, own, "lines")
    word_count(session, own, "lines").orderBy("count", ascending=False).show(10)
