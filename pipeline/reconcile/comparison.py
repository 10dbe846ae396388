"""The comparison of two sides by 128-bit hashes of ids and 64-bit hashes of contents, with secret seeds per run.

1. Both sides are read once and summed into BUCKETS by the hash of the id. No message is moved or kept.
2. Where a bucket's counts or sums differ, both sides are read again, and the rows of those buckets are grouped by id.
   Spark sorts and spills them, so memory does not grow with them, even when all messages differ.

Two different messages count as equal with a probability of 2^-64.
"""

import os
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.archive.place import ArchivePlace
from pipeline.reconcile.sides import ID, IS_JUDGED, OFFSET, QUEUE, ComparedSide, ContentRule, content_rule
from pipeline.watching import Say, silent, watched

BUCKETS = 1 << 16
WITHOUT_ID = -1
"""The bucket of rows without an id."""
ROWS_PER_PARTITION = 2_000_000
"""Rows of 60 bytes that one task sorts: they and its buffers fit into a heap of 1 GB, and it spills before."""
FIRST_SHOWN = 100
LISTED_MAX = 1000
"""More buckets are joined, not listed in the query."""
LEFT, RIGHT = 0, 1


class DifferenceKind(StrEnum):
    MISSING_LEFT = "missing_left"
    MISSING_RIGHT = "missing_right"
    DOUBLED_LEFT = "doubled_left"
    DOUBLED_RIGHT = "doubled_right"
    ALTERED = "altered"


@dataclass
class IdComparison:
    """The result of a comparison.

    Attributes:
        counts: messages per side; `without_id`: those that cannot be compared.
        differences: number of ids per kind; only kinds that occur.
        first: the first ones, as `findings` has all of them.
        findings: path of a Parquet table; empty: there are none.
    """

    names: tuple[str, str]
    judged: tuple[str, str]
    rule: str
    counts: tuple[int, int] = (0, 0)
    without_id: tuple[int, int] = (0, 0)
    buckets: int = 0
    differences: dict[DifferenceKind, int] = field(default_factory=dict)
    first: list[dict[str, Any]] = field(default_factory=list)
    findings: str = ""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_equal(self) -> bool:
        return not self.differences and not any(self.without_id)

    def said(self, kind: DifferenceKind) -> str:
        """The kind in words."""
        left, right = self.names
        return {
            DifferenceKind.MISSING_LEFT: f"missing in {left}", DifferenceKind.MISSING_RIGHT: f"missing in {right}",
            DifferenceKind.DOUBLED_LEFT: f"doubled in {left}", DifferenceKind.DOUBLED_RIGHT: f"doubled in {right}",
            DifferenceKind.ALTERED: "altered",
        }[kind]  # fmt: skip


def compare(
    spark: SparkSession, left: ComparedSide, right: ComparedSide, folder: str,
    ignored: tuple[DifferenceKind, ...] = (), say: Say = silent,
) -> IdComparison:  # fmt: skip
    """Compare two sides. Nothing is changed on either.

    Args:
        folder: directory or URL; all differences are written to `findings` in it, in place of earlier ones.
        ignored: kinds that are no difference.
    """
    began_s, rule = time.monotonic(), content_rule(left, right)
    result = IdComparison(
        (left.name, right.name), (left.described(), right.described()), rule.described,
        notes=[*left.notes, *right.notes],
    )  # fmt: skip
    seeds = [int.from_bytes(os.urandom(8), "big", signed=True) for _ in range(4)]
    sides = (left, right)
    with watched(spark, f"sums of {left.name} and {right.name}", say):
        sums = summed(_both(spark, sides, rule, seeds), seeds[3]).toArrow().to_pylist()
    result.counts = sum(row["lefts"] for row in sums), sum(row["rights"] for row in sums)
    for row in sums:
        if row["bucket"] == WITHOUT_ID:
            result.without_id = row["lefts"], row["rights"]
    differing = [row for row in sums if row["bucket"] != WITHOUT_ID and any(row[name] for name in ("n", "low", "high"))]
    result.buckets = len(differing)
    ArchivePlace(folder).remove_folder("findings")
    if differing:
        rows = _both(spark, sides, rule, seeds, [row["bucket"] for row in differing])
        number = 1 + sum(row["lefts"] + row["rights"] for row in differing) // ROWS_PER_PARTITION
        with watched(spark, f"ids in {len(differing):,} of {BUCKETS:,} buckets", say), _shuffled(spark, number):
            path = f"{folder.rstrip('/')}/findings"
            found = differences(rows).where(~F.col("kind").isin(*map(str, ignored)) if ignored else F.lit(True))
            found.write.mode("overwrite").parquet(path)
            _read_findings(spark, path, result)
    result.seconds = time.monotonic() - began_s
    return result


def hashed(rows: DataFrame, side: ComparedSide, rule: ContentRule, seeds: list[int], number: int) -> DataFrame:
    """One row of numbers per message, with its id for the report."""
    return rows.select(
        F.lit(number).alias("side"), F.col(ID), F.xxhash64(F.lit(seeds[0]), F.col(ID)).alias("high"),
        F.xxhash64(F.lit(seeds[1]), F.col(ID)).alias("low"),
        F.xxhash64(F.lit(seeds[2]), *rule.columns(side)).alias("content"), bucket_of(seeds).alias("bucket"),
        F.col(QUEUE), F.col(OFFSET), F.col(IS_JUDGED),
    )  # fmt: skip


def bucket_of(seeds: list[int]) -> Column:
    high = F.xxhash64(F.lit(seeds[0]), F.col(ID))
    return F.when(F.isnull(ID), WITHOUT_ID).otherwise(F.pmod(high, F.lit(BUCKETS))).cast("int")


def in_buckets(spark: SparkSession, rows: DataFrame, seeds: list[int], buckets: list[int]) -> DataFrame:
    """The rows of these buckets. The others are left out before their contents are hashed."""
    if len(buckets) > BUCKETS // 2:
        return rows.where(~F.isnull(ID))
    if len(buckets) <= LISTED_MAX:
        return rows.where(bucket_of(seeds).isin(buckets))
    chosen = spark.createDataFrame([(each,) for each in buckets], "chosen INT")
    return rows.join(F.broadcast(chosen), bucket_of(seeds) == F.col("chosen"), "left_semi")


def summed(rows: DataFrame, seed: int) -> DataFrame:
    """Per bucket: messages per side, and the differences between the sides' counts and sums.

    Sums, not XOR: two messages that are doubled, one on each side, would vanish in XOR.
    """
    whole = F.xxhash64(F.lit(seed), F.col("high"), F.col("low"), F.col("content"))
    sign = F.when(F.col("side") == LEFT, 1).otherwise(-1).cast("long")
    parts = rows.select("bucket", sign.alias("sign"), whole.alias("whole"))
    return parts.groupBy("bucket").agg(
        F.sum((F.col("sign") == 1).cast("long")).alias("lefts"),
        F.sum((F.col("sign") == -1).cast("long")).alias("rights"),
        F.sum("sign").alias("n"),
        F.sum(F.col("sign") * F.col("whole").bitwiseAND(0xFFFFFFFF)).alias("low"),
        F.sum(F.col("sign") * F.shiftrightunsigned("whole", 32)).alias("high"),
    )


def differences(rows: DataFrame) -> DataFrame:
    """One row per id whose messages differ: kind, id, copies per side, and the first place on each side.

    Every judged message needs one on the other side with the same content, judged or not. Messages that are not judged
    need none.
    """
    place, is_left = F.struct(QUEUE, OFFSET), F.col("side") == LEFT
    by_content = rows.groupBy("high", "low", "content").agg(
        _count(is_left).alias("lefts"), _count(~is_left).alias("rights"),
        _count(is_left & F.col(IS_JUDGED)).alias("judged_lefts"),
        _count(~is_left & F.col(IS_JUDGED)).alias("judged_rights"), F.min(ID).alias(ID),
        F.min(F.when(is_left, place)).alias("left_place"), F.min(F.when(~is_left, place)).alias("right_place"),
    )  # fmt: skip
    more_left, more_right = F.col("judged_lefts") > F.col("rights"), F.col("judged_rights") > F.col("lefts")
    is_alone = (more_left & (F.col("rights") == 0)) | (more_right & (F.col("lefts") == 0))
    by_id = by_content.groupBy("high", "low").agg(
        F.min(ID).alias(ID), F.sum("lefts").alias("lefts"), F.sum("rights").alias("rights"),
        _count(is_alone).alias("alone"), _count(more_left).alias("more_left"), _count(more_right).alias("more_right"),
        F.min("left_place").alias("left_place"), F.min("right_place").alias("right_place"),
    )  # fmt: skip
    kind = (
        F.when(F.col("rights") == 0, DifferenceKind.MISSING_RIGHT)
        .when(F.col("lefts") == 0, DifferenceKind.MISSING_LEFT)
        .when(F.col("alone") > 0, DifferenceKind.ALTERED)
        .when(F.col("more_left") > 0, DifferenceKind.DOUBLED_LEFT)
        .otherwise(DifferenceKind.DOUBLED_RIGHT)
    )
    return by_id.where((F.col("more_left") > 0) | (F.col("more_right") > 0)).select(
        kind.alias("kind"), ID, "lefts", "rights",
        F.col("left_place.queue").alias("left_queue"), F.col("left_place.offset").alias("left_offset"),
        F.col("right_place.queue").alias("right_queue"), F.col("right_place.offset").alias("right_offset"),
    )  # fmt: skip


def _both(
    spark: SparkSession,
    sides: tuple[ComparedSide, ComparedSide],
    rule: ContentRule,
    seeds: list[int],
    buckets: list[int] | None = None,
) -> DataFrame:
    """The judged rows of both sides; with buckets, all rows in these."""
    found = []
    for number, side in enumerate(sides):
        rows = side.rows(spark, is_wide=buckets is not None)
        if buckets is not None:
            rows = in_buckets(spark, rows, seeds, buckets)
        found.append(hashed(rows, side, rule, seeds, number))
    return found[0].unionByName(found[1])


def _read_findings(spark: SparkSession, path: str, result: IdComparison) -> None:
    found = spark.read.parquet(path)
    counts = {DifferenceKind(row["kind"]): row["count"] for row in found.groupBy("kind").count().collect()}
    result.differences = {kind: counts[kind] for kind in DifferenceKind if kind in counts}
    if counts:
        result.findings = path
        result.first = [row.asDict() for row in found.orderBy("kind", ID).limit(FIRST_SHOWN).collect()]


def _count(condition: Column) -> Column:
    return F.sum(condition.cast("long"))


class _shuffled:
    """Sets the number of partitions of shuffles for a block."""

    NAME = "spark.sql.shuffle.partitions"

    def __init__(self, spark: SparkSession, number: int) -> None:
        self._spark, self._number = spark, number

    def __enter__(self) -> None:
        self._before = self._spark.conf.get(self.NAME) or "200"
        self._spark.conf.set(self.NAME, str(max(self._number, int(self._before))))

    def __exit__(self, *_: object) -> None:
        self._spark.conf.set(self.NAME, self._before)
