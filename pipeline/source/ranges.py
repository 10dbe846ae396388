"""Ranges of offsets: resolved from the options, limited per trigger, cut into partitions. Pure: values in, values out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from pipeline.errors import DataLost, OptionsError
from pipeline.options import EARLIEST, StartAt
from pipeline.proxy.topics import QueueBounds, TopicQueue

Offsets = dict[TopicQueue, int]


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """Messages of one queue, from `start` to before `end`. A partition of a read."""

    topic: str
    queue: int
    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start


def resolve(at: StartAt, bounds: Mapping[TopicQueue, QueueBounds], at_time: Mapping[TopicQueue, int]) -> Offsets:
    """The offset of every queue that a place names.

    Args:
        at_time: offsets of the place's time, if it is one.
    Raises:
        OptionsError: offsets are not given for exactly the queues that there are.
    """
    if at.offsets is not None:
        named = {
            TopicQueue(topic, queue): offset for topic, each in at.offsets.items() for queue, offset in each.items()
        }
        if wrong := sorted(named.keys() ^ bounds.keys()):
            listed = ", ".join(f"{each.topic}/{each.queue}" for each in wrong[:5])
            raise OptionsError(
                [f"offsets: {len(wrong)} queues too many or missing: {listed}: give one offset per queue"]
            )
        return named
    if at.time_ms is not None:
        return dict(at_time)
    return {queue: each.first if at.word == EARLIEST else each.end for queue, each in bounds.items()}


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """One range per queue that has messages between the two; a queue that `start` lacks starts at 0."""
    return [
        OffsetRange(each.topic, each.queue, start.get(each, 0), limit)
        for each, limit in sorted(end.items())
        if limit > start.get(each, 0)
    ]


def check_start(
    ranges: Sequence[OffsetRange], bounds: Mapping[TopicQueue, QueueBounds], fail: bool
) -> list[OffsetRange]:
    """Ranges without what is no longer stored.

    Raises:
        DataLost: a range begins before its queue's first offset, and `fail` is set.
    """
    checked = []
    for each in ranges:
        first = bounds[TopicQueue(each.topic, each.queue)].first
        if each.start < first:
            if fail:
                raise data_lost(each.topic, each.queue, each.start, first)
            each = OffsetRange(each.topic, each.queue, min(first, each.end), each.end)
        if each.count:
            checked.append(each)
    return checked


def data_lost(topic: str, queue: int, wanted: int, first: int) -> DataLost:
    return DataLost(
        f"topic {topic} queue {queue}: offset {wanted} is no longer stored, the first one is {first}: "
        "set failOnDataLoss to false to continue there"
    )


def cut(ranges: Sequence[OffsetRange], partitions_min: int) -> list[OffsetRange]:
    """At least `partitions_min` ranges, as far as there are messages: each is cut in proportion to its share of all."""
    total = sum(each.count for each in ranges)
    if len(ranges) >= partitions_min or not total:
        return list(ranges)
    parts: list[OffsetRange] = []
    for each in ranges:
        number = max(1, min(each.count, -(-each.count * partitions_min // total)))
        marks = [each.start + each.count * index // number for index in range(number + 1)]
        parts += [OffsetRange(each.topic, each.queue, start, end) for start, end in pairwise(marks)]
    return parts


def limited(start: Offsets, end: Offsets, messages_max: int) -> Offsets:
    """The end of a trigger that reads at most so many messages, in proportion to each queue's backlog.

    At least one message is read if there is any, so that a small limit does not stall. Equal arguments give equal ends.
    """
    backlog = {each: limit - start.get(each, 0) for each, limit in end.items() if limit > start.get(each, 0)}
    total = sum(backlog.values())
    if total <= messages_max:
        return dict(end)
    taken = {each: count * messages_max // total for each, count in backlog.items()}
    left = max(1, messages_max) - sum(taken.values())
    for each in sorted(backlog, key=lambda item: (-backlog[item], item)):
        if left <= 0:
            break
        if taken[each] < backlog[each]:
            taken[each] += 1
            left -= 1
    return {each: start.get(each, 0) + taken.get(each, 0) for each in end}


def not_before(start: Offsets, end: Offsets) -> Offsets:
    """The ends with every queue of `start`, none before its start.

    A queue that is gone keeps its offset. So does one whose end went back, because its topic was made anew: reading it
    again from 0 would mix two topics.
    """
    return {each: max(end.get(each, 0), start.get(each, 0)) for each in {**end, **start}}
