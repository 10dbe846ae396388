"""Copies of a plan's topics and groups in the same Kafka cluster, and their removal.

Only names of the rehearsal are written. The real topics and groups are read: settings, the newest records, positions.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import NamedTuple

from common.kafka.base import (
    EARLIEST,
    STABLE_END,
    ClusterAdmin,
    KafkaProducer,
    KafkaTopic,
    NewKafkaTopic,
    PartitionReader,
)
from common.kafka.errors import KafkaFault
from common.kafka.records import OutgoingRecords, Partition, ProduceResults, Records
from migration.errors import PlanRefused
from migration.rehearsal.names import RehearsalNames, is_of

SETTINGS = (
    "cleanup.policy", "compression.type", "max.message.bytes", "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms", "message.timestamp.type", "min.insync.replicas", "segment.bytes",
)  # fmt: skip
"""Of a topic, which its copy has as well."""
KEPT = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Of a copy: old records of the sample would be deleted while they are compared."""
THERE_S_MAX, SAMPLE_S_MAX, GONE_S_MAX = 30.0, 60.0, 30.0
LOOK_S = 0.1


class SampledTopic(NamedTuple):
    """
    Attributes:
        records: that were copied.
        ends: of the real partitions, when the sample was taken.
        offsets: per partition, the offsets of the copied records.
    """

    records: int
    ends: tuple[int, ...]
    offsets: tuple[tuple[int, ...], ...]

    def position(self, partition: int, committed: int) -> int:
        """Where a group of the copy is that has read the real partition up to an offset."""
        return sum(at < committed for at in self.offsets[partition])


class KafkaCopies:
    """
    Args:
        sample: maximum number of records per partition.
    Attributes:
        placed: groups of the plan that have positions, which their copies have got.
    """

    def __init__(
        self, names: RehearsalNames, kafka: ClusterAdmin, open_reader: Callable[[], PartitionReader],
        open_producer: Callable[[], KafkaProducer], sample: int,
    ) -> None:  # fmt: skip
        self._names, self._kafka, self._sample = names, kafka, sample
        self._open_reader, self._open_producer = open_reader, open_producer
        self.placed: list[str] = []

    def make(self) -> dict[str, SampledTopic]:
        """Make the copies of topics, with their records, and of groups. Blocks; raises KafkaFault, PlanRefused."""
        found = self._kafka.topics([*self._names.topics])
        if missing := [name for name in self._names.topics if name not in found]:
            raise PlanRefused(f"kafka {self._names.plan.cluster}: topic {missing[0]}: not found")
        configs = self._kafka.configs([*self._names.topics])
        wanted = {
            copy: NewKafkaTopic(found[name].partitions, found[name].copies, settings_of(configs.get(name, {})))
            for name, copy in self._names.topics.items()
        }
        for name, refusal in self._kafka.create_topics(wanted).items():
            raise PlanRefused(f"the copy {name} cannot be made: {refusal}")
        _wait(lambda: len(self._kafka.topics([*wanted])) == len(wanted), THERE_S_MAX, "the copies do not appear")
        sampled = self._copy_records(found)
        self._place_groups(sampled)
        return sampled

    def _copy_records(self, topics: Mapping[str, KafkaTopic]) -> dict[str, SampledTopic]:
        wanted = [Partition(name, number) for name, each in topics.items() for number in range(each.partitions)]
        firsts, ends = self._kafka.offsets(wanted, EARLIEST), self._kafka.offsets(wanted, STABLE_END)
        spans = {each: (max(firsts[each] or 0, (ends[each] or 0) - self._sample), ends[each] or 0) for each in wanted}
        offsets: dict[Partition, list[int]] = {each: [] for each in wanted}
        filled = {each: span for each, span in spans.items() if span[0] < span[1]}
        if filled and self._sample:
            self._pump(filled, offsets)
        return {
            name: SampledTopic(
                sum(len(offsets[Partition(name, n)]) for n in range(each.partitions)),
                tuple(spans[Partition(name, n)][1] for n in range(each.partitions)),
                tuple(tuple(offsets[Partition(name, n)]) for n in range(each.partitions)),
            )
            for name, each in topics.items()
        }

    def _pump(self, spans: Mapping[Partition, tuple[int, int]], offsets: dict[Partition, list[int]]) -> None:
        """Read the spans and produce their records into the copies."""
        producer = self._open_producer()
        refused: list[str] = []
        try:
            for copy in sorted({self._names.topics[each.topic] for each in spans}):
                producer.partitions(copy)
            with closing(self._open_reader()) as reader:
                for part, taken in _fetched(reader, spans):
                    offsets[part.partition] += [part.offsets[at] for at in taken]
                    producer.produce(self._outgoing(part, taken), lambda results: refused.extend(_refusals(results)))
            if not producer.flush(SAMPLE_S_MAX):
                refused.append(f"not written within {SAMPLE_S_MAX:.0f} s")
        finally:
            producer.close(5.0)
        if refused:
            raise PlanRefused(f"the sample cannot be written into the copies: {refused[0]}")

    def _outgoing(self, part: Records, taken: list[int]) -> OutgoingRecords:
        copy, count = self._names.topics[part.partition.topic], len(taken)
        return OutgoingRecords(
            [copy] * count, [part.partition.number] * count, [part.timestamps[at] for at in taken],
            [part.keys[at] for at in taken], [part.values[at] for at in taken], [part.headers[at] for at in taken],
        )  # fmt: skip

    def _place_groups(self, sampled: Mapping[str, SampledTopic]) -> None:
        """Give each copy of a group the place in the sample that the real one has among the real records."""
        for group, copy in self._names.groups.items():
            positions = {
                Partition(self._names.topics[each.topic], each.number): sampled[each.topic].position(each.number, at)
                for each, at in self._kafka.group_offsets(group).items()
                if each.topic in sampled
            }
            if positions:
                self._kafka.set_group_offsets(copy, positions)
                self.placed.append(group)


def settings_of(configs: Mapping[str, str]) -> dict[str, str]:
    """The settings of a copy."""
    return {name: configs[name] for name in SETTINGS if configs.get(name)} | KEPT


def _fetched(
    reader: PartitionReader, spans: Mapping[Partition, tuple[int, int]]
) -> Iterator[tuple[Records, list[int]]]:
    """Fetches, each with the indexes of the records within the span."""
    reader.assign({each: first for each, (first, _) in spans.items()})
    waiting, deadline = dict(spans), time.monotonic() + SAMPLE_S_MAX
    while waiting:
        if time.monotonic() > deadline:
            raise PlanRefused(f"the sample cannot be read within {SAMPLE_S_MAX:.0f} s: use a smaller --sample")
        for part in reader.poll(0.2):
            if part.partition in waiting:
                end = waiting[part.partition][1]
                yield part, [at for at, offset in enumerate(part.offsets) if offset < end]
        done = [each for each, at in reader.positions().items() if each in waiting and at >= waiting[each][1]]
        for each in done:
            del waiting[each]
        reader.pause(done)


def _refusals(results: ProduceResults) -> list[str]:
    return [*results.sentences.values()]


def remove(kafka: ClusterAdmin, run: str) -> tuple[list[str], list[str]]:
    """Delete what a rehearsal has made in Kafka: the names of its topics and groups. Raises KafkaFault.

    A group whose members have been killed counts as in use until their session ends.
    """
    topics = sorted(name for name in kafka.topics() if is_of(run, name))
    kafka.delete_topics(topics)
    groups = sorted(name for name in kafka.groups() if is_of(run, name))
    for group in groups:
        _wait(partial(_is_deleted, kafka, group), GONE_S_MAX, f"group {group} has members")
    _wait(lambda: not kafka.topics(topics) if topics else True, GONE_S_MAX, "the copies stay in Kafka")
    return topics, groups


def _is_deleted(kafka: ClusterAdmin, group: str) -> bool:
    try:
        kafka.delete_groups([group])
    except KafkaFault:
        return False
    return True


def _wait(is_so: Callable[[], bool], seconds: float, otherwise: str) -> None:
    """Raises PlanRefused after so many seconds."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise PlanRefused(f"{otherwise} (waited {seconds:.0f} s)")
        time.sleep(LOOK_S)
