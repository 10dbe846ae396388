"""Copies from Kafka into the engine as commands see them: their state, and an operator's word where one has stopped."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from common.admin import kafka_clusters
from common.admin.administrator import Administrator
from common.config.definitions import CopyInDefinition, KafkaClusterDefinition, TopicDefinition
from common.kafka.base import ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.errors import KafkaFault
from common.kafka.records import Partition
from common.names import stored_name
from common.placement import NONE_PLACED, Placement, topic_hash
from common.quoting import quoted
from engine.client import copied
from engine.client.admin import AdminClient, AdminError
from engine.link.codes import UNKNOWN_TOPIC
from engine.link.copy import SourceState
from kafka_bridge.connecting import connection_of, driver_of
from kafka_bridge.copy_in.core import Halt, first_step
from kafka_bridge.copy_in.last_copied import LastCopied, last_copied
from kafka_bridge.copy_in.status import (
    TO_BE_COPIED,
    KafkaSide,
    PartitionStatus,
    kafka_side,
    status_of,
    with_records_left,
    without_last_copied,
)
from kafka_bridge.source_identity import source_of
from penstock.terminal import engines
from penstock.terminal.exits import CONFLICT, NOT_FOUND, UNAVAILABLE, USAGE, CommandError
from penstock.terminal.instance import Instance

READ_S, TRIES, CONNECT_S = 1.0, 15, 5.0
LOOKED_THROUGH_MAX = 10_000
"""Offsets of a partition that are read to see whether there is anything to copy among them."""


class CopyDefinitionFound(NamedTuple):
    """Which Kafka topic is copied into a topic."""

    topic: TopicDefinition
    cluster: KafkaClusterDefinition
    kafka_topic: str


def copy_into(admin: Administrator, topic: TopicDefinition) -> CopyDefinitionFound | None:
    """The copy into a topic; None: there is none. Raises EntryNotFound."""
    if topic.kafka_cluster is not None:
        return CopyDefinitionFound(topic, kafka_clusters.show(admin, topic.kafka_cluster)[0], topic.name)
    found = admin.store.get(CopyInDefinition.kind, topic.name)
    if found is None:
        return None
    entry = CopyInDefinition.from_value(topic.name, found.value)
    return CopyDefinitionFound(topic, kafka_clusters.show(admin, entry.cluster)[0], entry.topic_of_kafka)


class QueueLinks:
    """Links to the engines of a topic's queues."""

    def __init__(self, topic: TopicDefinition, links: dict[str, AdminClient]) -> None:
        self.stored = stored_name(topic.name, topic.made_ms)
        self._links, self._hash = [*links.values()], topic_hash(topic.name.encode())
        self._placement = Placement([*links], {self._hash: topic.ranges} if topic.ranges else NONE_PLACED)

    def of(self, queue: int) -> AdminClient:
        return self._links[self._placement.home(self._hash, queue)]

    def states(self, queues: range) -> dict[int, SourceState]:
        """Of the queues that the engines have. Raises AdminError, OSError."""
        found = {}
        for queue in queues:
            try:
                (found[queue],) = copied.states(self.of(queue), [(self.stored, queue)])
            except AdminError as error:
                if error.code != UNKNOWN_TOPIC and "use 0.." not in str(error):
                    raise
        return found


@contextmanager
def both_sides(
    instance: Instance, copy: CopyDefinitionFound
) -> Iterator[tuple[QueueLinks, dict[int, SourceState], KafkaSide]]:
    """Links to the engines, the states of the queues, and Kafka's topic as it is after them. Raises CommandError.

    In this order: a copy that goes on meanwhile would seem to be beyond an earlier end of a partition.
    """
    with engines.connected(instance) as links:
        found = QueueLinks(copy.topic, links)
        states = found.states(range(copy.topic.queues))
        try:
            with closing(driver_of(copy.cluster).admin(connection(copy.cluster))) as kafka:
                side = kafka_side(kafka, copy.kafka_topic)
        except KafkaFault as fault:
            raise CommandError(str(fault), UNAVAILABLE) from fault
        if side is None:
            sentence = f"kafka {quoted(copy.cluster.name)}: topic {quoted(copy.kafka_topic)}: it does not exist there"
            raise CommandError(sentence, NOT_FOUND)
        yield found, states, side


def status(instance: Instance, copy: CopyDefinitionFound) -> list[PartitionStatus]:
    """The state of the copy of each partition. Raises CommandError: a side does not answer."""
    with both_sides(instance, copy) as (links, states, side):
        found = status_of(copy.topic.name, side, states)
        last = _last_copied(copy, links, states, {each.partition for each in found if goes_on(each)})
    behind = {
        each.partition: each for each in found if 0 < (each.behind or 0) <= LOOKED_THROUGH_MAX and is_behind(each, side)
    }
    positions = {Partition(copy.kafka_topic, number): each.next for number, each in behind.items()}
    ends = {each: side.stable_ends[each.number] for each in positions}
    if not positions and not last:
        return found
    try:
        with closing(driver_of(copy.cluster).reader(connection(copy.cluster), ReaderOptions())) as reader:
            left = with_records_left(reader, positions, ends, READ_S, copy.topic.name)
            lost = without_last_copied(reader, last, side, READ_S)
    except KafkaFault as fault:
        raise CommandError(str(fault), UNAVAILABLE) from fault
    done = {each.number for each in positions if each not in left}
    told = {each.number: fault for each, fault in left.items() if fault}
    told |= {each.number: last[each].loss(copy.topic.name, each) for each in lost}
    found = [each._replace(behind=0, waits_for="") if each.partition in done else each for each in found]
    return [each._replace(waits_for=told.get(each.partition, each.waits_for)) for each in found]


def goes_on(found: PartitionStatus) -> bool:
    """Whether its ends say so."""
    return not found.waits_for or found.waits_for.endswith(TO_BE_COPIED)


def _last_copied(
    copy: CopyDefinitionFound, links: QueueLinks, states: dict[int, SourceState], queues: set[int]
) -> dict[Partition, LastCopied]:
    found: dict[int, LastCopied] = {}
    for queue in queues & states.keys():
        found |= last_copied(links.of(queue), links.stored, {queue: states[queue]})
    return {Partition(copy.kafka_topic, queue): each for queue, each in found.items()}


def is_behind(found: PartitionStatus, side: KafkaSide) -> bool:
    """Whether a copy goes on and has committed offsets before it."""
    return found.waits_for.endswith(TO_BE_COPIED) and found.next < side.stable_ends[found.partition]


def connection(cluster: KafkaClusterDefinition) -> KafkaConnection:
    """A cluster that is away does not make an operator wait for long."""
    return replace(connection_of(cluster), connect_timeout_s=CONNECT_S)


def shown_status(instance: Instance, admin: Administrator, topic: TopicDefinition) -> dict[str, Any]:
    """Fields of `topic show`: what the copy into the topic waits for, and how far it is behind. Never fails."""
    try:
        copy = copy_into(admin, topic)
        if copy is None:
            return {}
        found = status(instance, copy)
    except (CommandError, KafkaFault) as error:
        return {"copy": f"unknown: {error}"}
    waits = [f"partition {each.partition}: {each.waits_for}" for each in found if each.waits_for]
    more = f" (and {len(waits) - 1} more partitions)" if len(waits) > 1 else ""
    behind = [each.behind for each in found if each.behind is not None]
    is_known = len(behind) == len(found)
    return {"copy": waits[0] + more if waits else "up to date", "copy_behind": sum(behind) if is_known else None}


def accept(
    instance: Instance,
    copy: CopyDefinitionFound,
    partition: int | None,
    start: int | None,
    skip: int | None,
    reason: str,
) -> list[dict[str, Any]]:
    """Make stopped partitions go on; returns one row per partition that does.

    Raises:
        CommandError: none is stopped, or the offset does not fit.
    """
    with both_sides(instance, copy) as (links, states, side):
        if partition is not None and partition not in states:
            raise CommandError(f"--partition {partition}: nothing is copied from it: use one of {[*states]}", USAGE)
        rows = []
        for number, state in states.items():
            if partition not in (None, number) or number not in side.bounds or not state.number:
                continue
            begin = _start(copy, side, number, state, start, skip)
            if begin is None:
                continue
            source = source_of(side.cluster_id, side.topic, number)
            found = copied.accept(
                links.of(number), links.stored, number, source, start=begin, replaces=state.number, reason=reason
            )
            rows.append({"partition": number, "before": state.next, "start": found.next, "source": found.number})
    if not rows:
        raise CommandError(
            f"topic {quoted(copy.topic.name)}: its copy is not stopped: there is nothing to accept", CONFLICT
        )
    return rows


def _start(
    copy: CopyDefinitionFound, side: KafkaSide, number: int, state: SourceState, start: int | None, skip: int | None
) -> int | None:
    """The offset to go on at; None: the partition is not stopped."""
    bounds, where = side.bounds[number], Partition(copy.kafka_topic, number)
    if skip is not None:
        _check_next(copy, where, state.next, skip)
        return skip + 1
    if start is not None:
        if not bounds.start <= start <= bounds.end:
            raise CommandError(f"--start {start}: partition {number} has {bounds.start}..{bounds.end}", USAGE)
        return start
    step = first_step(copy.topic.name, where, state, source_of(side.cluster_id, side.topic, number), bounds, 0)
    if not isinstance(step, Halt):
        return None
    if bounds.end < state.next and state.source == source_of(side.cluster_id, side.topic, number):
        raise CommandError(f"{step.sentence}: --start is missing", USAGE)
    return bounds.start


def _check_next(copy: CopyDefinitionFound, partition: Partition, following: int, skip: int) -> None:
    """Raise CommandError unless the record at `skip` is the one at which the copy stands."""
    try:
        with closing(driver_of(copy.cluster).reader(connection(copy.cluster), ReaderOptions(records_max=10))) as reader:
            reader.assign({partition: following})
            polls = (records for _ in range(TRIES) for records in reader.poll(READ_S))
            first = next((records.offsets[0] for records in polls if records.offsets), None)
    except KafkaFault as fault:
        raise CommandError(str(fault), UNAVAILABLE) from fault
    if first != skip:
        raise CommandError(
            f"--skip {skip}: the copy stands at offset {first}: only that record can be left out", CONFLICT
        )
