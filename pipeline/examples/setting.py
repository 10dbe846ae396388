"""Setting of the examples: proxies and folders, and data that PySpark ships (MovieLens ratings, the word list AFINN)."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

DATA = Path(pyspark.__file__).parent / "data"
RATINGS = DATA / "mllib" / "als" / "sample_movielens_ratings.txt"
"""1,501 lines `user::movie::rating::Unix seconds`."""
WORDS = DATA / "streaming" / "AFINN-111.txt"
"""2,477 words with their sentiment from −5 to 5."""
LICENSES = Path(pyspark.__file__).parent / "licenses"
"""Texts to count words of."""


@dataclass(frozen=True)
class ExampleSetting:
    """Attributes: producer, consumer: addresses of proxies; folder: for checkpoints and tables."""

    producer: str
    consumer: str
    credential: str
    folder: str

    def read(self, topic: str, **more: str) -> dict[str, str]:
        return {"endpoint": self.consumer, "credential": self.credential, "topics": topic, "start": "earliest", **more}

    def write(self, topic: str, **more: str) -> dict[str, str]:
        return {"endpoint": self.producer, "credential": self.credential, "topic": topic, **more}

    def checkpoint(self, name: str) -> str:
        return f"{self.folder}/checkpoints/{name}"


def ratings(spark: SparkSession) -> DataFrame:
    """The ratings as messages: id, key, and a JSON body."""
    parts = F.split("value", "::")
    rows = spark.read.text(str(RATINGS)).select(
        parts[0].cast("int").alias("user"), parts[1].cast("int").alias("movie"), parts[2].cast("float").alias("rating"),
        parts[3].cast("long").alias("rated_s"),
    )  # fmt: skip
    return rows.selectExpr(
        "concat(user, '-', movie) AS id", "CAST(user AS STRING) AS key", "to_json(struct(*)) AS body"
    )


RATING = "user INT, movie INT, rating FLOAT, rated_s LONG"


def send_ratings(spark: SparkSession, setting: ExampleSetting, topic: str) -> int:
    """Send the ratings; a second run within the topic's id window stores none twice. Returns their number."""
    rows = ratings(spark)
    rows.write.format("penstock").options(**setting.write(topic, idColumn="id")).mode("append").save()
    return rows.count()


def send_texts(spark: SparkSession, setting: ExampleSetting, topic: str) -> int:
    """Send each line of the licences that PySpark ships as a message. Returns their number."""
    rows = spark.read.text(str(LICENSES)).where("length(trim(value)) > 0")
    rows.selectExpr("value AS body").write.format("penstock").options(**setting.write(topic)).mode("append").save()
    return rows.count()


def setting_of_arguments(about: str) -> ExampleSetting:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--producer", default="127.0.0.1:9700", metavar="HOST:PORT")
    parser.add_argument("--consumer", default="127.0.0.1:9701", metavar="HOST:PORT")
    parser.add_argument("--credential", default="spark.json", metavar="FILE")
    parser.add_argument("--folder", default="spark-examples", metavar="DIR", help="for checkpoints and tables")
    chosen = parser.parse_args()
    return ExampleSetting(chosen.producer, chosen.consumer, chosen.credential, str(Path(chosen.folder).resolve()))
