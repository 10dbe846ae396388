"""Compares Spark's data source `penstock` with its Kafka source and sink: `python -m bench.spark --messages 1000000`.

Question: how many messages per second does Spark write, read in a batch and read in a stream, on this machine with the
system beside it? Bodies have 200 bytes, and four queues or partitions. Both sides run in turn in one session of Spark,
each on a fresh instance of its system. Excluded: the start of Spark and of the systems, and a first small run of each
kind. Reads go to Spark's `noop` sink with the same six columns. The sink of Penstock gives each message an id, so a
repeated batch is stored once; Kafka's sink stores it again.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial

from pyspark.sql import SparkSession

from bench.peers.build import spark_kafka_jars
from bench.spark.sides import SparkSide, kafka_side, penstock_side
from pipeline.session import local_session

BODY_BYTES = 200
WARM, MEASURED = "warm", "measured"
WARM_MESSAGES = 20_000
PER_TRIGGER = 250_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--only", choices=("penstock", "kafka"), help="Measure one side.")
    options = parser.parse_args()
    jars = "" if options.only == "penstock" else ",".join(map(str, spark_kafka_jars()))
    spark = local_session("bench", "local[2]", {"spark.jars": jars} if jars else {})
    spark.sparkContext.setLogLevel("ERROR")
    rates = {}
    if options.only != "kafka":
        with penstock_side([WARM, MEASURED]) as side:
            rates["penstock"] = measure(spark, side, options.messages)
    if options.only != "penstock":
        with kafka_side() as side:
            rates["kafka"] = measure(spark, side, options.messages)
    spark.stop()
    print(json.dumps({"messages": options.messages, "body_bytes": BODY_BYTES, "messages_per_s": rates}))
    return 0


def measure(spark: SparkSession, side: SparkSide, messages: int) -> dict[str, int]:
    """Messages per second of a write, a batch read and a stream."""
    steps = {"write": write, "batch_read": read, "stream_read": stream}
    for step in steps.values():
        step(spark, side, WARM, WARM_MESSAGES)
    rates = {}
    for name, step in steps.items():
        rates[name] = round(messages / timed(partial(step, spark, side, MEASURED, messages)))
        print(f"{side.form} {name}: {rates[name]:,} messages/s", file=sys.stderr, flush=True)
    return rates


def timed(work: Callable[[], None]) -> float:
    began_s = time.monotonic()
    work()
    return time.monotonic() - began_s


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
    with tempfile.TemporaryDirectory(prefix="penstock-bench-checkpoint-") as folder:
        query = rows.writeStream.format("noop").option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()


if __name__ == "__main__":
    sys.exit(main())
