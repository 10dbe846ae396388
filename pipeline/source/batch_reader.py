"""The batch source: `spark.read.format("penstock")`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pipeline.errors import CallRefused
from pipeline.options import EARLIEST, ReadOptions, StartAt
from pipeline.proxy.pulls import PositionPulls
from pipeline.proxy.topics import QueueBounds, TopicQueue, matching_bounds, offsets_at, queue_bounds
from pipeline.reply.columns import NAMES
from pipeline.reply.row_filter import RowFilter
from pipeline.source.bodies import with_bodies
from pipeline.source.pruning import has_times, pruned, row_filter, times_around, within_times
from pipeline.source.ranges import OffsetRange, Offsets, check_start, cut, ranges_between, resolve
from pipeline.source.read_range import read_range
from pipeline.source.schema import body_type


def read_columns(options: ReadOptions, part: InputPartition, rows: RowFilter) -> Iterator[pa.RecordBatch]:
    """The batches of one partition, with the options' columns and the rows for which the filter holds."""
    if not isinstance(part, OffsetRange):
        return
    names = tuple(each for each in NAMES if each in options.columns or (each == "body" and options.body != "binary"))
    for batch in read_range(options, names, part, rows):
        if options.body == "binary":
            yield batch.select(list(options.columns))
        else:
            yield with_bodies(batch, options.body, body_type(options), options.columns)


def bounds_of(pulls: PositionPulls, options: ReadOptions) -> dict[TopicQueue, QueueBounds]:
    """The bounds of every queue of the options' topics; a pattern is resolved now."""
    if options.topic_pattern:
        return matching_bounds(pulls, options.topic_pattern)
    return queue_bounds(pulls, options.topics)


def offsets_of(
    pulls: PositionPulls, place: StartAt, bounds: dict[TopicQueue, QueueBounds], *, is_end: bool = False
) -> Offsets:
    """The offsets that a place of the options names now. An end is at most the present end of each queue."""
    at_time = {} if place.time_ms is None else offsets_at(pulls, list(bounds), place.time_ms)
    found = resolve(place, bounds, at_time)
    return {each: min(offset, bounds[each].end) for each, offset in found.items()} if is_end else found


class PenstockReader(DataSourceReader):
    """Reads ranges that are fixed when the query is planned. No group is moved; a second run reads the same."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.filters: list[Filter] = []
        self.rows = row_filter((), options.filter)

    def partitions(self) -> Sequence[InputPartition]:
        return list(self._ranges())

    def _ranges(self) -> Sequence[OffsetRange]:
        options = self.options
        with PositionPulls(options.endpoints) as pulls:
            bounds = bounds_of(pulls, options)
            if options.topic_pattern and not bounds:
                raise CallRefused(f"topicPattern {options.topic_pattern!r}: matches no topic that can be pulled from")
            start = offsets_of(pulls, options.start or StartAt(EARLIEST), bounds)
            end = offsets_of(pulls, options.end, bounds, is_end=True)
            ranges = check_start(ranges_between(start, end), bounds, options.fail_on_data_loss)
            kept = pruned(ranges, self.filters)
            if has_times(self.rows):
                queues = [TopicQueue(each.topic, each.queue) for each in kept]
                since, until = times_around(self.rows)
                kept = within_times(kept, offsets_at(pulls, queues, since), offsets_at(pulls, queues, until))
        return cut(kept, options.partitions_min)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_columns(self.options, partition, self.rows)


class PruningReader(PenstockReader):
    """Reads only ranges, and builds only rows, that the query's filters may hold for.

    Spark refuses a reader with this method unless `spark.sql.python.filterPushdown.enabled` is true, so it is a class
    of its own, by option `pushFilters`.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.filters = list(filters)
        self.rows = row_filter(self.filters, self.options.filter)
        return filters
