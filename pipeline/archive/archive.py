"""Archives topics, and verifies an archive. Spark's tasks do one range each; one run per archive at a time."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from pyspark.sql import SparkSession

from pipeline.archive.leftovers import leftovers
from pipeline.archive.manifest import RangeEntry, hour_of, manifest_faults, missing_ranges, read_manifest
from pipeline.archive.place import ArchivePlace
from pipeline.archive.stored_range import entry_faults
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
    """
    Attributes:
        ranges: to archive.
        orphans: files that a run that died has left.
        newest_hours: per topic, of what is archived. What comes in an hour before it is late.
    """

    ranges: list[OffsetRange]
    orphans: list[str]
    newest_hours: dict[str, str]

    @property
    def messages(self) -> int:
        return sum(each.count for each in self.ranges)


class ArchiveVerdict(NamedTuple):
    """The result of a verification.

    Attributes:
        ranges, messages: that are there.
        faults: one sentence per fault, none when the archive is complete.
        pruned: messages whose files a policy has removed.
    """

    ranges: int
    messages: int
    faults: list[str]
    pruned: int


def plan_archive(options: Mapping[str, str], url: str, range_messages: int = RANGE_MESSAGES) -> ArchivePlan:
    """What an archive lacks of the options' topics, from `start` to `end`. Raises OptionsError."""
    chosen, place = read_options(options), ArchivePlace(url)
    entries = read_manifest(place, chosen.topics)
    with PositionPulls(chosen.endpoints) as pulls:
        bounds = queue_bounds(pulls, chosen.topics)
        start = offsets_of(pulls, chosen.start or StartAt(EARLIEST), bounds)
        end = offsets_of(pulls, chosen.end, bounds, is_end=True)
    newest: dict[str, str] = {}
    for entry in entries:
        newest[entry.topic] = max([newest.get(entry.topic, ""), *map(hour_of, entry.files)])
    ranges = missing_ranges(ranges_between(start, end), entries, range_messages)
    return ArchivePlan(ranges, leftovers(place, chosen.topics), newest)


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
        work = partial(archive_range, chosen, url, plan.newest_hours)
        entries += context.parallelize(part, len(part)).map(work).collect()
        progress(sum(each.end - each.start for each in entries), plan.messages)
    return entries


def verify_archive(
    spark: SparkSession, url: str, topics: Sequence[str] = (), progress: OnProgress = lambda *_: None
) -> ArchiveVerdict:
    """Read every file of the manifest again and compare it with its entry; look for gaps and for foreign files.

    A range that was pruned has no files, and is no gap.
    """
    place = ArchivePlace(url)
    every = read_manifest(place, topics)
    faults, entries = manifest_faults(every), [each for each in every if not each.pruned_ms]
    named = {name for entry in entries for name in entry.files}
    for topic in sorted({each.topic for each in every}):
        faults += [f"{name}: no entry names this file" for name in place.names(f"topic={topic}") if name not in named]
    step = ROUNDS_PER_CORE * spark.sparkContext.defaultParallelism
    done, total = 0, sum(each.count for each in entries)
    for first in range(0, len(entries), step):
        part = entries[first : first + step]
        for found in spark.sparkContext.parallelize(part, len(part)).map(partial(entry_faults, url)).collect():
            faults += found
        done += sum(each.count for each in part)
        progress(done, total)
    return ArchiveVerdict(len(entries), total, faults, sum(each.count for each in every if each.pruned_ms))
