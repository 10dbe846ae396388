"""Reads Kafka's side of a comparison: records of a topic's partitions between offsets, and single ones."""

import time
from collections.abc import Iterator, Mapping

from common.kafka.base import PartitionReader
from common.kafka.errors import KafkaRefusal, PositionOutOfRange
from common.kafka.records import Partition, Records
from migration.reconcile.spans import ReadRange

POLL_S = 0.2
SILENCE_S_MAX = 30.0
"""After it, without a record or a moved position, Kafka counts as not answering."""


def fetches(reader: PartitionReader, ranges: Mapping[Partition, ReadRange]) -> Iterator[Records]:
    """The committed records of partitions from their first offset on; the last fetch of each may pass its end.

    Raises:
        KafkaFault: also when retention has deleted a position, or nothing comes for SILENCE_S_MAX.
    """
    wanted = {each: span for each, span in ranges.items() if span.first < span.end}
    if not wanted:
        return
    reader.assign({each: span.first for each, span in wanted.items()})
    reader.resume(list(wanted))  # librdkafka keeps the pause of an earlier assignment
    deadline = time.monotonic() + SILENCE_S_MAX
    before: dict[Partition, int] = {}
    while wanted:
        found = reader.poll(POLL_S)
        for records in found:
            if records.partition in wanted:
                yield records
        positions = reader.positions()
        done = [each for each, span in wanted.items() if positions.get(each, 0) >= span.end]
        if done:
            reader.pause(done)
            for each in done:
                del wanted[each]
        if found or positions != before:
            deadline = time.monotonic() + SILENCE_S_MAX
        elif time.monotonic() > deadline:
            each = next(iter(wanted))
            raise KafkaRefusal(
                0, f"kafka topic {each.topic} partition {each.number}: no record after offset {positions.get(each)} for "
                f"{SILENCE_S_MAX:.0f} s"
            )  # fmt: skip
        before = positions


def record_at(reader: PartitionReader, partition: Partition, offset: int, end: int) -> tuple[Records, int] | None:
    """The fetch that has the first committed record at or above an offset, and its index; None: there is none.

    Raises:
        KafkaFault
    """
    try:
        for records in fetches(reader, {partition: ReadRange(offset, end)}):
            for index, at in enumerate(records.offsets):
                if offset <= at < end:
                    return records, index
    except PositionOutOfRange:
        return None
    return None


def first_time(reader: PartitionReader, partition: Partition, first: int, end: int) -> int | None:
    """Timestamp of the first committed record of a partition between two offsets; None: there is none, or it has none."""
    found = record_at(reader, partition, first, end)
    time_ms = found[0].timestamps[found[1]] if found is not None else -1
    return time_ms if time_ms >= 0 else None
