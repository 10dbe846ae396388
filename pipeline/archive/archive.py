"""Archives topics, and verifies an archive. Spark's tasks do one range each; one run per archive at a time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pipeline.archive.manifest import RangeEntry, manifest_faults, missing_ranges, read_manifest
from pipeline.archive.place import WORK, ArchivePlace
from pipeline.archive.row_hash import RangeHash
from pipeline.archive.write_range import archive_range
from pipeline.options import EARLIEST, StartAt, read_options
from pipeline.proxy.pulls import PositionPulls
from pipeline.proxy.topics import queue_bounds
from pipeline.source.batch_reader import offsets_of
from pipeline.source.ranges import OffsetRange, ranges_between

RANGE_MESSAGES = 500_000
ROUNDS_PER_CORE = 2
OnProgress = Callable[[int, int], None]
"""Called with the messages that are done, and those of the whole job."""


class ArchivePlan(NamedTuple):
    """The ranges to archive, and files that no entry names: a run that died has left them."""

    ranges: list[OffsetRange]
    orphans: list[str]

    @property
    def messages(self) -> int:
        return sum(each.count for each in self.ranges)


class ArchiveVerdict(NamedTuple):
    """The result of a verification. `faults`: one sentence per fault, none when the archive is complete."""

    ranges: int
    messages: int
    faults: list[str]


def plan_archive(options: Mapping[str, str], url: str, range_messages: int = RANGE_MESSAGES) -> ArchivePlan:
    """What an archive lacks of the options' topics, from `start` to `end`. Raises OptionsError."""
    chosen, place = read_options(options), ArchivePlace(url)
    entries = read_manifest(place, chosen.topics)
    with PositionPulls(chosen.endpoints) as pulls:
        bounds = queue_bounds(pulls, chosen.topics)
        start = offsets_of(pulls, chosen.start or StartAt(EARLIEST), bounds)
        end = offsets_of(pulls, chosen.end, bounds, is_end=True)
    named = {name for entry in entries for name in entry.files}
    found = [name for topic in chosen.topics for name in place.names(f"topic={topic}")]
    orphans = [name for name in found if name not in named] + place.names(WORK)
    return ArchivePlan(missing_ranges(ranges_between(start, end), entries, range_messages), orphans)


def run_archive(
    spark: SparkSession, options: Mapping[str, str], url: str, plan: ArchivePlan, progress: OnProgress = lambda *_: None
) -> list[RangeEntry]:
    """Archive the ranges of a plan and return their entries. What is done stays done when the run dies.

    Raises:
        an exception of Spark, when a range failed as often as a task may.
    """
    place, chosen, entries = ArchivePlace(url), read_options(options), []
    for name in plan.orphans:
        place.remove(name)
    context = spark.sparkContext
    step = ROUNDS_PER_CORE * context.defaultParallelism
    for first in range(0, len(plan.ranges), step):
        part = plan.ranges[first : first + step]
        entries += context.parallelize(part, len(part)).map(partial(archive_range, chosen, url)).collect()
        progress(sum(each.end - each.start for each in entries), plan.messages)
    return entries


def verify_archive(
    spark: SparkSession, url: str, topics: Sequence[str] = (), progress: OnProgress = lambda *_: None
) -> ArchiveVerdict:
    """Read every file of the manifest again and compare it with its entry; look for gaps and for foreign files."""
    place = ArchivePlace(url)
    entries = read_manifest(place, topics)
    faults = manifest_faults(entries)
    named = {name for entry in entries for name in entry.files}
    for topic in sorted({each.topic for each in entries}):
        faults += [f"{name}: no entry names this file" for name in place.names(f"topic={topic}") if name not in named]
    step = ROUNDS_PER_CORE * spark.sparkContext.defaultParallelism
    done, total = 0, sum(each.count for each in entries)
    for first in range(0, len(entries), step):
        part = entries[first : first + step]
        for found in spark.sparkContext.parallelize(part, len(part)).map(partial(entry_faults, url)).collect():
            faults += found
        done += sum(each.count for each in part)
        progress(done, total)
    return ArchiveVerdict(len(entries), total, faults)


def entry_faults(url: str, entry: RangeEntry) -> list[str]:
    """Compare the files of one entry with it."""
    place, name = ArchivePlace(url), f"topic {entry.topic} queue {entry.queue} from {entry.start} to {entry.end}"
    try:
        rows = _rows(place, entry.files)
    except (OSError, pa.ArrowException) as error:
        return [f"{name}: {' '.join(str(error).split())}"]
    count = 0 if rows is None else len(rows)
    if count != entry.count:
        return [f"{name}: {count} rows instead of {entry.count}"]
    if rows is None:
        return []
    bounds = pc.min_max(rows.column("offset")).as_py()
    if bounds["min"] < entry.start or bounds["max"] >= entry.end:
        return [f"{name}: has offsets from {bounds['min']} to {bounds['max']}"]
    hashed = RangeHash()
    hashed.add(rows)
    return [] if hashed.hex() == entry.hash else [f"{name}: the hash of the rows differs from the manifest's"]


def _rows(place: ArchivePlace, files: Iterable[str]) -> Any:
    """All rows of the files, in order of their offsets; None without a file."""
    tables = [pq.ParquetFile(place.files.open_input_file(place.path(name))).read() for name in files]
    return pa.concat_tables(tables).sort_by("offset").combine_chunks() if tables else None
