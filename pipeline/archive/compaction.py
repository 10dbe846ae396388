"""Joins small ranges of an archive, and thereby their small files.

New files first, then the entry of the joined range, then the old entries and files are removed. An entry within the range
of another one has been replaced, so the manifest names either the old files or the new ones after a crash at any point.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from pyspark.sql import SparkSession

from pipeline.archive.leftovers import leftovers
from pipeline.archive.manifest import RangeEntry, read_manifest, write_entry
from pipeline.archive.place import ArchivePlace
from pipeline.archive.row_hash import RangeHash
from pipeline.archive.stored_range import checked_rows
from pipeline.archive.write_range import HourFiles
from pipeline.source.ranges import OffsetRange

Group = tuple[RangeEntry, ...]


def plan_compaction(url: str, topics: Sequence[str], messages_max: int) -> list[Group]:
    """Groups of neighbouring ranges to join, each with at most so many messages. Raises ArchiveDamaged."""
    return groups_to_join(read_manifest(ArchivePlace(url), topics), messages_max)


def groups_to_join(entries: Sequence[RangeEntry], messages_max: int) -> list[Group]:
    """Pure. A range with more than half of the messages stays as it is, or it would be written again at each run."""
    groups: list[Group] = []
    for _, own in groupby(entries, key=lambda each: (each.topic, each.queue)):
        group: list[RangeEntry] = []
        for each in own:
            fits = not each.pruned_ms and each.count <= messages_max // 2
            follows = group and group[-1].end == each.start
            if group and not (fits and follows and sum(one.count for one in group) + each.count <= messages_max):
                groups.append(tuple(group))
                group = []
            if fits:
                group.append(each)
        groups.append(tuple(group))
    return [group for group in groups if len(group) > 1]


def run_compaction(
    spark: SparkSession, url: str, groups: Sequence[Group], progress: Callable[[int, int], None] = lambda *_: None
) -> list[RangeEntry]:
    """Join the groups and return the new entries.

    Raises:
        an exception of Spark whose cause is ArchiveDamaged: a file does not match its entry. Nothing was removed.
    """
    place, context = ArchivePlace(url), spark.sparkContext
    for name in leftovers(place, sorted({group[0].topic for group in groups})) if groups else ():
        place.remove(name)
    made: list[RangeEntry] = []
    total, step = sum(each.count for group in groups for each in group), 2 * context.defaultParallelism
    for first in range(0, len(groups), step):
        part = groups[first : first + step]
        made += context.parallelize(part, len(part)).map(partial(join_ranges, url)).collect()
        progress(sum(each.count for each in made), total)
    return made


def join_ranges(url: str, group: Group) -> RangeEntry:
    """Join a group. At most one of its ranges is in memory. Repeating it after a crash completes it."""
    place, first, last = ArchivePlace(url), group[0], group[-1]
    late = tuple(sorted({hour for each in group for hour in each.late}))
    joined = RangeEntry(first.topic, first.queue, first.start, last.end, 0, "", (), late=late)
    if place.exists(joined.name):
        joined = next(
            each
            for each in read_manifest(place, [first.topic])
            if (each.queue, each.start) == (first.queue, first.start)
        )
    else:
        joined = _written(place, group, joined)
    for each in group:
        place.remove(each.name)
    for name in [name for each in group for name in each.files]:
        place.remove(name)
    return joined


def _written(place: ArchivePlace, group: Group, joined: RangeEntry) -> RangeEntry:
    files = HourFiles(place, OffsetRange(joined.topic, joined.queue, joined.start, joined.end))
    hashed, count = RangeHash(), 0
    for each in group:
        rows = checked_rows(place, each)
        for batch in rows.to_batches() if rows is not None else ():
            files.write(batch)
            hashed.add(batch)
            count += len(batch)
    made = RangeEntry(
        joined.topic, joined.queue, joined.start, joined.end, count, hashed.hex(), files.publish(), late=joined.late
    )
    write_entry(place, made)
    return made
