"""A program as a user writes it: a streaming copy between topics, run until there is nothing left to copy.

copy_program.py OPTIONS: JSON with the options `read` and `write`, the directory `checkpoint`, the `format` of the sink
(`penstock`, or `penstock-struck`, see struck_source.py), and the `master` with its `settings`.
"""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from pipeline.session import local_session
from tests.e2e.pipeline.queries import run_to_end
from tests.e2e.pipeline.struck_source import StruckSource


def copy(spark: SparkSession, given: dict[str, Any]) -> StreamingQuery:
    return (
        spark.readStream.format("penstock")
        .options(**given["read"])
        .load()
        .writeStream.format(given.get("format", "penstock"))
        .options(**given["write"])
        .option("checkpointLocation", given["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = local_session("copy", given.get("master", "local[2,2]"), given.get("settings"))
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(StruckSource)
    run_to_end(lambda: copy(spark, given))
    spark.stop()


if __name__ == "__main__":
    main()
