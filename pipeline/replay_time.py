"""The times at which messages of a replay are due: the gaps between their times of storing, divided by a factor."""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.errors import PipelineError

DUE = "due_ms"
SECONDS_MAX = 3_000_000
"""Different seconds in which messages of one replay were stored: a month. Their times are a table in the driver."""


class ReplayTime(NamedTuple):
    """
    Attributes:
        rows: with column DUE, in the order in which they are due, as many partitions as tasks run at a time.
        lasts_s: from the first to the last message.
    """

    rows: DataFrame
    lasts_s: float


def timed(rows: DataFrame, speed: float, gap_max_s: float) -> ReplayTime:
    """Give each row the time at which it is due, in milliseconds after the first one.

    The messages of a queue stay in their order: one that was stored by a clock that had been set back is due with the one
    before it.

    Args:
        gap_max_s: no gap of the replay is longer.
    Raises:
        PipelineError: the messages are of more than SECONDS_MAX seconds.
    """
    spark = rows.sparkSession
    before = Window.partitionBy("topic", "queue").orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    stored = rows.withColumn("_ms", F.max(F.unix_millis("stored_at")).over(before))
    stored = stored.withColumn("_second", F.floor(F.col("_ms") / 1000))
    seconds = [row[0] for row in stored.select("_second").distinct().limit(SECONDS_MAX + 1).collect()]
    if len(seconds) > SECONDS_MAX:
        raise PipelineError(
            f"replay: messages of more than {SECONDS_MAX:,} seconds: replay a shorter time with --start"
        )
    table = due_of_seconds(sorted(seconds), speed, gap_max_s)
    within_s = min(1 / speed, gap_max_s)
    due = spark.createDataFrame(table or [(0, 0)], "_second LONG, _due LONG")
    joined = stored.join(F.broadcast(due), "_second")
    share = F.floor((F.col("_ms") % 1000) * within_s).cast("long")
    parallel = max(1, spark.sparkContext.defaultParallelism)
    placed = joined.withColumn(DUE, F.col("_due") + share).repartition(parallel, "topic", "queue")
    ordered = placed.sortWithinPartitions(DUE, "topic", "queue", "offset").drop("_ms", "_second", "_due")
    last = table[-1][1] / 1000 + within_s if table else 0.0
    return ReplayTime(ordered, last)


def due_of_seconds(seconds: Sequence[int], speed: float, gap_max_s: float) -> list[tuple[int, int]]:
    """(second, milliseconds after the first one at which its messages begin) of sorted, different seconds."""
    found, due_ms = [], 0.0
    for index, second in enumerate(seconds):
        if index:
            due_ms += 1000 * min((second - seconds[index - 1]) / speed, gap_max_s)
        found.append((second, round(due_ms)))
    return found
