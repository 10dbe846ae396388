"""Enrichment join: each line of topic `lines` with the sum of its words' sentiments, to topic `scored`.

penstock topic create lines scored
python -m pipeline.examples.enrichment
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.examples.setting import WORDS, ExampleSetting, send_texts, setting_of_arguments
from pipeline.session import local_session


def enrich(spark: SparkSession, setting: ExampleSetting, topic: str, target: str) -> None:
    """Score all lines that are there. A line keeps its place as the id, so a repeated batch is stored once."""
    sentiments = spark.read.csv(str(WORDS), sep="\t", schema="word STRING, sentiment INT")

    def score(lines: DataFrame, number: int) -> None:
        words = lines.select(
            "topic", "queue", "offset", "body", F.explode(F.split(F.lower("body"), "[^a-z]+")).alias("word")
        )
        scored = words.join(F.broadcast(sentiments), "word", "left").groupBy("topic", "queue", "offset", "body")
        rows = scored.agg(F.coalesce(F.sum("sentiment"), F.lit(0)).alias("score")).selectExpr(
            "topic AS source_topic", "queue AS source_queue", "offset AS source_offset",
            "to_json(struct(body AS line, score)) AS body",
        )  # fmt: skip
        rows.write.format("penstock").options(**setting.write(target)).mode("append").save()

    lines = spark.readStream.format("penstock").options(
        **setting.read(topic, body="string", columns="topic,queue,offset,body")
    )
    query = (
        lines.load()
        .writeStream.foreachBatch(score)
        .option("checkpointLocation", setting.checkpoint(target))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    own, session = setting_of_arguments("Lines with their sentiment."), local_session("enrichment")
    send_texts(session, own, "lines")
    enrich(session, own, "lines", "scored")
