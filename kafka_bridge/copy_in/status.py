"""The state of a copy as anyone can compute it, from what the engine and Kafka say: no process is asked what it remembers."""

import time
from collections.abc import Mapping
from typing import NamedTuple

from common.kafka.base import EARLIEST, END, STABLE_END, ClusterAdmin, KafkaTopic, PartitionReader
from common.kafka.records import Partition
from engine.link.copy import SourceState
from kafka_bridge.copy_in.core import Begin, Halt, PartitionBounds, first_step, unstorable
from kafka_bridge.copy_in.last_copied import LastCopied
from kafka_bridge.copy_in.messages import storing_fault
from kafka_bridge.source_identity import source_of

TO_BE_COPIED = "records are to be copied"
NOT_BEGUN = "the copy has not begun: is a Kafka bridge running?"


class PartitionStatus(NamedTuple):
    """
    Attributes:
        next: the offset after the last copied record.
        behind: greatest number of records that are not copied. Control records, those of aborted transactions and gaps
            count, so it may stay above 0 where nothing is left to copy. None: not known, as the offsets that were copied
            belong to other records than those that Kafka has now.
        waits_for: what the copy of this partition waits for; empty: for new records only.
    """

    partition: int
    next: int
    end: int
    behind: int | None
    waits_for: str


class KafkaSide(NamedTuple):
    """A Kafka topic at one time, with the bounds and the stable ends of its partitions."""

    cluster_id: str
    topic: KafkaTopic
    bounds: dict[int, PartitionBounds]
    stable_ends: dict[int, int]


def kafka_side(admin: ClusterAdmin, name: str) -> KafkaSide | None:
    """Ask Kafka; None: there is no such topic. Raises KafkaFault."""
    topic = admin.topics([name]).get(name)
    if topic is None:
        return None
    asked = [Partition(name, number) for number in range(topic.partitions)]
    starts, ends, stable = (admin.offsets(asked, at) for at in (EARLIEST, END, STABLE_END))
    return KafkaSide(
        admin.describe().cluster_id,
        topic,
        {each.number: PartitionBounds(starts[each] or 0, ends[each] or 0) for each in asked},
        {each.number: min(stable[each] or 0, ends[each] or 0) for each in asked},
    )


def status_of(topic: str, kafka: KafkaSide, states: dict[int, SourceState]) -> list[PartitionStatus]:
    """The state of each partition.

    Args:
        topic: of the engine.
        states: of its queues, asked for before Kafka; one that is missing is not in the engine yet.
    """
    found = []
    for number, bounds in sorted(kafka.bounds.items()):
        state = states.get(number)
        if state is None or not state.number:
            found.append(PartitionStatus(number, bounds.start, bounds.end, bounds.end - bounds.start, NOT_BEGUN))
            continue
        source = source_of(kafka.cluster_id, kafka.topic, number)
        step = first_step(topic, Partition(kafka.topic.name, number), state, source, bounds, 0)
        assert not isinstance(step, Begin)
        stable = kafka.stable_ends[number]
        behind: int | None = max(0, bounds.end - state.next)
        waits_for = ""
        if isinstance(step, Halt):
            waits_for = step.sentence
            behind = behind if state.source == source and state.next <= bounds.end else None
        elif state.next >= stable < bounds.end:
            waits_for = f"an open transaction of a producer: records from offset {stable:,} on are not committed"
        elif state.next < stable:
            waits_for = f"up to {stable - state.next:,} {TO_BE_COPIED}"
        found.append(PartitionStatus(number, state.next, bounds.end, behind, waits_for))
    return found


def without_last_copied(
    reader: PartitionReader, last: Mapping[Partition, LastCopied], kafka: KafkaSide, wait_s: float
) -> set[Partition]:
    """The partitions that have not, or not any more, the record that was copied last. What is not read in time, has it."""
    asked = {
        each: at for each, at in last.items()
        if kafka.bounds[each.number].start <= at.offset < kafka.stable_ends[each.number]
    }  # fmt: skip
    left, lost = set(asked), set()
    reader.assign({each: at.offset for each, at in asked.items()})
    until_s = time.monotonic() + wait_s
    while left and time.monotonic() < until_s:
        for records in reader.poll(0.2):
            each = records.partition
            if each not in left or records.next_offset <= asked[each].offset:
                continue
            left.discard(each)
            if not records.offsets or not asked[each].is_at(records, 0, kafka.topic.id.bytes):
                lost.add(each)
    return lost


def with_records_left(
    reader: PartitionReader,
    positions: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    wait_s: float,
    topic: str,
) -> dict[Partition, str]:
    """The partitions that have committed records from their position on; others have nothing that could be copied.

    Each with the sentence about its first record where the engine cannot store that. Offsets alone do not tell: control
    records, aborted ones and gaps have offsets, too.

    Args:
        ends: up to where it is read. What was not read within `wait_s` counts as left.
        topic: of the engine.
    """
    if not positions:
        return {}
    reader.assign(positions)
    open_ones: set[Partition] = {each for each, at in positions.items() if at < ends[each]}
    left: dict[Partition, str] = {}
    until_s = time.monotonic() + wait_s
    while open_ones and time.monotonic() < until_s:
        for records in reader.poll(0.2):
            each = records.partition
            if each not in left and records.offsets and records.offsets[0] < ends[each]:
                fault = storing_fault(records, 0)
                left[each] = unstorable(each, records.offsets[0], fault, topic) if fault else ""
        read = {each for each, at in reader.positions().items() if at >= ends[each]}
        open_ones -= read | {*left}
    return dict.fromkeys(open_ones, "") | left
