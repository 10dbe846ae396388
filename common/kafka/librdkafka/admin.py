"""Administration over librdkafka."""

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import UUID

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from common.kafka.base import (
    EARLIEST,
    END,
    STABLE_END,
    ClusterAdmin,
    ClusterDescription,
    KafkaBroker,
    KafkaTopic,
    NewKafkaTopic,
)
from common.kafka.connection import KafkaConnection
from common.kafka.errors import ClusterUnreachable, KafkaFault, KafkaRefusal
from common.kafka.group_admin import CommittedPosition, in_parts, named
from common.kafka.librdkafka.faults import COORDINATOR_MOVES, fault_of, translated
from common.kafka.librdkafka.options import common_options, opened
from common.kafka.records import Partition

REQUEST_TIMEOUT_S, COORDINATOR_PAUSE_S = 30.0, 0.1
FIRST_ASK_S = 2.0
"""Time after which an open question for a group's positions has the group described: see `_committed`."""
CONSUMERS = 8
"""So many groups are asked for at the same time."""
UNKNOWN_TOPIC, UNKNOWN_GROUP = 3, 69
"""Kafka's numbers."""


class LibrdkafkaAdmin(ClusterAdmin):
    def __init__(self, connection: KafkaConnection) -> None:
        self._connection, self._cluster = connection, connection.name
        options = {**common_options(connection), "socket.timeout.ms": int(REQUEST_TIMEOUT_S * 1000)}
        self._client, self._last = opened(connection, AdminClient, options, lambda client: client.poll(0))

    def describe(self) -> ClusterDescription:
        with translated(self._cluster):
            found = self._client.describe_cluster(request_timeout=REQUEST_TIMEOUT_S).result()
        brokers = [KafkaBroker(each.id, each.host, each.port, each.rack or "") for each in found.nodes]
        return ClusterDescription(found.cluster_id, found.controller.id, sorted(brokers))

    def topics(self, names: Sequence[str] | None = None) -> dict[str, KafkaTopic]:
        with translated(self._cluster):
            wanted = [*self._client.list_topics(timeout=REQUEST_TIMEOUT_S).topics] if names is None else [*names]
            if not wanted:
                return {}
            asked = self._client.describe_topics(TopicCollection(wanted), request_timeout=REQUEST_TIMEOUT_S)
        found = {name: _result_or_none(future) for name, future in asked.items()}
        return {
            name: KafkaTopic(name, _uuid(each.topic_id), len(each.partitions), _copies(each))
            for name, each in found.items()
            if each is not None and (names is not None or not each.is_internal)
        }

    def create_topics(self, topics: Mapping[str, NewKafkaTopic]) -> dict[str, KafkaRefusal]:
        if not topics:
            return {}
        wanted = [
            NewTopic(name, each.partitions, each.copies, config=dict(each.configs)) for name, each in topics.items()
        ]
        refusals = {}
        for name, future in self._client.create_topics(wanted, request_timeout=REQUEST_TIMEOUT_S).items():
            try:
                future.result()
            except KafkaException as fault:
                ours = fault_of(self._cluster, fault.args[0], f"topic {name}: ")
                if not isinstance(ours, KafkaRefusal):
                    raise ours from fault
                refusals[name] = ours
        return refusals

    def delete_topics(self, names: Sequence[str]) -> None:
        if names:
            asked = self._client.delete_topics([*names], request_timeout=REQUEST_TIMEOUT_S)
            self._finish(asked, "topic", UNKNOWN_TOPIC)

    def _finish(self, asked: Mapping[str, Any], what: str, missing: int) -> None:
        """Wait for deletions. What does not exist is left out."""
        for name, future in asked.items():
            try:
                future.result()
            except KafkaException as fault:
                if fault.args[0].code() != missing:
                    raise fault_of(self._cluster, fault.args[0], f"{what} {name}: ") from fault

    def configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        asked = self._client.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
        with translated(self._cluster):
            return {
                resource.name: {name: entry.value for name, entry in future.result().items()}
                for resource, future in asked.items()
            }

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        with translated(self._cluster):
            for future in self._client.incremental_alter_configs([resource]).values():
                future.result()

    def offsets(self, partitions: Sequence[Partition], at: int) -> dict[Partition, int | None]:
        found = {each: result.offset for each, result in self._listed(partitions, at).items()}
        return {each: offset if offset >= 0 else None for each, offset in found.items()}

    def leader_epochs(self, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        return {each: result.leader_epoch for each, result in self._listed(partitions, END).items()}

    def _listed(self, partitions: Sequence[Partition], at: int) -> dict[Partition, ListOffsetsResultInfo]:
        if not partitions:
            return {}
        specs = {TopicPartition(*each): _spec(at) for each in partitions}
        isolation = IsolationLevel.READ_COMMITTED if at == STABLE_END else IsolationLevel.READ_UNCOMMITTED
        with translated(self._cluster):
            asked = self._client.list_offsets(specs, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S)
            try:
                results = {key: future.result() for key, future in asked.items()}
            except KafkaException as fault:
                if fault.args[0].code() != KafkaError._NOENT:
                    raise
                raise self._without_leader({each.topic for each in partitions}, fault.args[0]) from fault
        return {Partition(key.topic, key.partition): found for key, found in results.items()}

    def _without_leader(self, topics: set[str], error: KafkaError) -> KafkaFault:
        """The library says only that it has found no leader: a broker's metadata say of which topic, and why."""
        for name in sorted(topics):
            told = self._client.list_topics(name, timeout=REQUEST_TIMEOUT_S).topics[name].error
            if told is not None:
                return fault_of(self._cluster, told, f"topic {name}: ")
        return fault_of(self._cluster, error)

    def groups(self) -> dict[str, str]:
        with translated(self._cluster):
            found = self._client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result()
        if found.errors:
            raise fault_of(self._cluster, found.errors[0].args[0])
        return {each.group_id: each.state.name.title().replace("_", "") for each in found.valid}

    def _all(self) -> list[Partition]:
        topics = self._client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        return [Partition(name, number) for name, topic in topics.items() for number in topic.partitions]

    def committed(
        self, group: str, partitions: Collection[Partition] | None = None
    ) -> dict[Partition, CommittedPosition]:
        # list_consumer_group_offsets() kills the process where the coordinator is moving: an answer NOT_COORDINATOR is
        # a segmentation fault in librdkafka up to 2.16. A consumer asks by other code, for partitions by name.
        with translated(self._cluster):
            asked = [TopicPartition(*each) for each in (self._all() if partitions is None else partitions)]
            consumer = Consumer({**common_options(self._connection), "group.id": group})
            try:
                found = self._committed(consumer, group, asked) if asked else []
            finally:
                consumer.close()
        for each in found:
            if each.error is not None:
                raise fault_of(self._cluster, each.error, f"group {group}, {each.topic} {each.partition}: ")
        return {
            Partition(each.topic, each.partition): CommittedPosition(each.offset, _note(each))
            for each in found
            if each.offset >= 0
        }

    def _committed(self, consumer: Consumer, group: str, asked: list[TopicPartition]) -> list[TopicPartition]:
        """The group's offsets. The library asks the coordinator once: one that moves, or has just started, is asked again.

        Where Kafka does not tell the user which broker is the coordinator, since it may not DESCRIBE the group, the
        library waits to the end and says that the time is out. A description of the group gets the refusal at once.
        """
        ends, ask_s = time.monotonic() + REQUEST_TIMEOUT_S, FIRST_ASK_S
        while True:
            try:
                return list(consumer.committed(asked, ask_s))
            except KafkaException as fault:
                number = fault.args[0].code()
                if number not in (KafkaError._TIMED_OUT, *COORDINATOR_MOVES) or time.monotonic() > ends:
                    raise
                if number == KafkaError._TIMED_OUT:
                    with suppress(ClusterUnreachable):
                        dict(in_parts([group], self._described))
                ask_s = max(FIRST_ASK_S, ends - time.monotonic())
                time.sleep(COORDINATOR_PAUSE_S)

    def committed_on(self, groups: Sequence[str], topics: Mapping[str, int]) -> dict[str, dict[Partition, int]]:
        """By a consumer per group, several at a time: see `committed`."""
        asked = [Partition(name, number) for name, count in topics.items() for number in range(count)]
        with ThreadPoolExecutor(CONSUMERS) as pool:
            found = pool.map(lambda group: self.committed(group, asked), groups)
            return {
                group: {key: each.offset for key, each in own.items()}
                for group, own in zip(groups, found, strict=True)
                if own
            }

    def subscribed(self, groups: Sequence[str]) -> dict[str, set[str]]:
        return {
            group: {each.topic for member in described.members for each in member.assignment.topic_partitions}
            for group, described in in_parts(groups, self._described)
        }

    def not_joinable(self, groups: Sequence[str]) -> list[str]:
        return [
            group for group, described in in_parts(groups, self._described)
            if described.state is not ConsumerGroupState.DEAD and AclOperation.READ not in described.authorized_operations
        ]  # fmt: skip

    def _described(self, groups: Sequence[str]) -> dict[str, Any]:
        with named(self._cluster, groups), translated(self._cluster):
            asked = self._client.describe_consumer_groups(
                [*groups], request_timeout=REQUEST_TIMEOUT_S, include_authorized_operations=True
            )
            return {group: future.result() for group, future in asked.items()}

    def delete_groups(self, groups: Sequence[str]) -> None:
        if groups:
            asked = self._client.delete_consumer_groups([*groups], request_timeout=REQUEST_TIMEOUT_S)
            self._finish(asked, "group", UNKNOWN_GROUP)

    def set_group_offsets(self, group: str, positions: Mapping[Partition, int]) -> None:
        wanted = [TopicPartition(*each, at) for each, at in positions.items()]
        with translated(self._cluster):
            (future,) = self._client.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, wanted)]
            ).values()
            for each in future.result().topic_partitions:
                if each.error is not None:
                    raise fault_of(self._cluster, each.error, f"group {group}, {each.topic} {each.partition}: ")

    def close(self) -> None:
        """The client ends with its last reference."""
        del self._client


def _spec(at: int) -> OffsetSpec:
    if at == EARLIEST:
        return OffsetSpec.earliest()
    return OffsetSpec.latest() if at in (END, STABLE_END) else OffsetSpec.for_timestamp(at)


def _result_or_none(future: Any) -> Any:
    """A topic's description; None: it does not exist, or the user may not see it."""
    try:
        return future.result()
    except KafkaException as fault:
        ours = fault_of("", fault.args[0])
        if isinstance(ours, KafkaRefusal):
            return None
        raise KafkaFault(str(ours)) from fault


def _uuid(id_: Any) -> UUID:
    high, low = id_.get_most_significant_bits(), id_.get_least_significant_bits()
    return UUID(int=(high % (1 << 64)) << 64 | low % (1 << 64))


def _copies(topic: Any) -> int:
    return max((len(each.replicas) for each in topic.partitions), default=0)


def _note(position: TopicPartition) -> str:
    """The note of a committed position. The client reads on behind its end up to the next zero byte, so more may follow."""
    try:
        return position.metadata or ""
    except UnicodeDecodeError as error:
        return error.object.decode(errors="replace")
