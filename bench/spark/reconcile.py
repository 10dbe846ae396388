"""Time and memory of a comparison of ids: `python -m bench.spark.reconcile --messages 10000000`.

Question: how long does `penstock pipeline reconcile sent` take, and how much memory, with one id missing, one doubled and
one altered? Bodies have 20 to 40 bytes, ids 20. The heap of Spark's JVM is limited to 1 GB. Against `archive`, the
differences are in the archive; against `engine`, which stores no id twice, they are in the table of what was sent.
Excluded: the start of Spark and the making of both sides. Memory is the sum of the PSS of all processes, once per
second. With --all-differ no id is on both sides, which is the worst case.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from bench.spark.memory import PeakMemory
from bench.spark.sides import penstock_side
from pipeline.archive.manifest import RangeEntry, write_entry
from pipeline.archive.place import ArchivePlace
from pipeline.archive.row_hash import RangeHash
from pipeline.archive.write_range import HourFiles
from pipeline.reconcile.comparison import compare
from pipeline.reconcile.report import summary, write_report
from pipeline.reconcile.sides import ArchiveRows, ComparedSide, SentRows, engine_rows
from pipeline.session import JOB_SETTINGS, local_session
from pipeline.source.ranges import OffsetRange

TOPIC = "orders"
RANGE = 500_000
START_US = int(datetime(2026, 1, 31, tzinfo=UTC).timestamp() * 1_000_000)
MISSING, DOUBLED, ALTERED = 17, 1_234, 77_777
"""Numbers of the messages that differ."""
ID, BODY = "concat('order-', lpad(CAST(id AS STRING), 14, '0'))", "concat('body of message ', CAST(id AS STRING))"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark.reconcile", description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--against", choices=("archive", "engine"), default="archive")
    parser.add_argument("--all-differ", action="store_true")
    parser.add_argument("--folder", type=Path, help="Keep the data in this directory (default: a temporary one).")
    options = parser.parse_args()
    if options.messages <= ALTERED:
        parser.error(f"--messages: use more than {ALTERED:,}")
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-ids-")))
        spark = local_session("reconcile", "local[2]", JOB_SETTINGS)
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        began_s = time.monotonic()
        make_sent(spark, folder, options.messages, options.all_differ, options.against == "engine")
        right = stack.enter_context(stored(spark, folder, options.messages, options.against))
        print(f"both sides were made in {time.monotonic() - began_s:,.0f} s", file=sys.stderr, flush=True)
        with PeakMemory() as memory:
            result = compare(spark, SentRows(spark, str(folder / "sent")), right, str(folder / "report"))
        write_report(result, TOPIC, str(folder / "report"))
    found = summary(result)
    print(json.dumps({
        "messages": options.messages, "against": options.against, "seconds": found["seconds"],
        "messages_per_s": round(2 * options.messages / result.seconds), "peak_pss_mib": memory.peak_bytes >> 20,
        "differences": found["differences"],
    }))  # fmt: skip
    if not options.all_differ and sorted(found["differences"].values()) != [1, 1, 1]:
        print("the comparison did not find exactly one missing, one doubled and one altered message", file=sys.stderr)
        return 1
    return 0


def make_sent(spark: SparkSession, folder: Path, messages: int, all_differ: bool, with_faults: bool) -> None:
    """The table of what was sent; `with_faults`: the differences are in it."""
    rows = spark.range(messages, numPartitions=max(2, messages // 5_000_000))
    shown = ID.replace("order-", "other-") if all_differ else ID
    if with_faults:
        rows = rows.selectExpr(
            "id", f"{shown} AS shown", f"CASE WHEN id = {ALTERED} THEN 'altered' ELSE {BODY} END AS body"
        )
        more = f"id IN ({DOUBLED}, {MISSING})"
        never = f"CASE WHEN id = {MISSING} THEN 'never-stored' ELSE shown END AS shown"
        rows = rows.union(rows.where(more).selectExpr("id", never, "body"))
    else:
        rows = rows.selectExpr("id", f"{shown} AS shown", f"{BODY} AS body")
    rows.selectExpr("shown AS id", "body").write.mode("overwrite").parquet(str(folder / "sent"))


@contextmanager
def stored(spark: SparkSession, folder: Path, messages: int, against: str) -> Iterator[ComparedSide]:
    if against == "archive":
        url = str(folder / "archive")
        starts = list(range(0, messages, RANGE))
        context = spark.sparkContext
        context.parallelize(starts, len(starts)).foreach(lambda start: write_archive(url, start, messages))
        yield ArchiveRows(url, TOPIC)
        return
    with penstock_side([TOPIC]) as side:
        rows = spark.range(messages, numPartitions=4).selectExpr(f"{ID} AS id", f"{BODY} AS body")
        writing = {**side.writing(TOPIC), "idColumn": "id"}
        rows.write.format("penstock").options(**writing).mode("append").save()
        yield engine_rows({key: value for key, value in side.read.items() if key != "columns"}, TOPIC)


def write_archive(url: str, start: int, messages: int) -> None:
    """One range of an archive in queue 0, as a task of `archive run` writes it, with the three differences."""
    end = min(start + RANGE, messages)
    offsets = pa.array(range(start, end), pa.int64())
    numbers = pc.if_else(pc.equal(offsets, MISSING), DOUBLED, offsets)  # one is missing, and another is there twice
    texts = numbers.cast(pa.string())
    bodies = pc.binary_join_element_wise("body of message ", texts, "")
    bodies = pc.if_else(pc.equal(numbers, ALTERED), "altered", bodies).cast(pa.binary())
    none = pa.nulls(len(numbers), pa.string())
    batch = pa.RecordBatch.from_pydict(
        {
            "queue": pa.array([0] * len(numbers), pa.int32()), "offset": offsets,
            "id": pc.binary_join_element_wise("order-", pc.utf8_lpad(texts, 14, "0"), ""), "key": none, "tag": none,
            "body": bodies, "properties": pa.nulls(len(numbers), pa.map_(pa.string(), pa.string())),
            "stored_at": pc.add(pc.multiply(offsets, 100), START_US).cast(pa.timestamp("us", "UTC")),
        }
    )  # fmt: skip
    place = ArchivePlace(url)
    files, hashed = HourFiles(place, OffsetRange(TOPIC, 0, start, end)), RangeHash()
    files.write(batch)
    hashed.add(batch)
    write_entry(place, RangeEntry(TOPIC, 0, start, end, len(batch), hashed.hex(), files.publish()))


if __name__ == "__main__":
    sys.exit(main())
