"""The rows of an archive with JSON bodies of the inferred schema."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from pipeline.archive.json_bodies import read_schema
from pipeline.options import MALFORMED
from pipeline.replay import archived_rows

PARSED, BAD = "_penstock_parsed", "_penstock_bad"


def json_rows(spark: SparkSession, url: str, topic: str) -> DataFrame:
    """The archived rows of a topic with bodies of its inferred schema. A body that does not fit is null, and its bytes are
    in column `malformed`."""
    rows, schema = archived_rows(spark, url, topic), read_schema(url, topic)
    text, marked = F.col("body").cast("string"), StructType([*schema.fields]).add(BAD, StringType())
    # Arrow's functions of PySpark need pandas, so Spark's own reader of JSON decodes.
    parsed = F.from_json(text, marked, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD})
    read = rows.withColumn(PARSED, parsed)
    fits = (
        F.col(PARSED).isNotNull() & F.col(PARSED).getField(BAD).isNull() & F.is_valid_utf8(text) & (F.trim(text) != "")
    )
    body = F.struct(*(F.col(PARSED).getField(name).alias(name) for name in schema.names))
    made = read.withColumn(MALFORMED, F.when(~F.coalesce(fits, F.lit(False)), F.col("body")))
    return made.withColumn("body", F.when(fits, body)).drop(PARSED)
