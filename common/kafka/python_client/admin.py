"""Administration over kafka-python."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from kafka import KafkaAdminClient, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.structs import OffsetAndMetadata

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
from common.kafka.errors import KafkaRefusal
from common.kafka.group_admin import CommittedPosition, in_parts, named
from common.kafka.python_client.faults import described, fault_of_text, translated
from common.kafka.python_client.options import common_options, opened
from common.kafka.records import Partition

REQUEST_TIMEOUT_MS = 30_000
UNKNOWN_TOPIC = 3
INVALID_CONFIG, NON_EMPTY_GROUP = 40, 68
"""Kafka's numbers; the library passes on only the text of what went wrong with such a request."""


class PythonAdmin(ClusterAdmin):
    def __init__(self, connection: KafkaConnection) -> None:
        self._cluster = connection.name
        options = {**common_options(connection), "request_timeout_ms": REQUEST_TIMEOUT_MS}
        self._client = opened(connection, KafkaAdminClient, options)

    def describe(self) -> ClusterDescription:
        with translated(self._cluster):
            found = self._client.describe_cluster()
        brokers = [
            KafkaBroker(each["broker_id"], each["host"], each["port"], each["rack"] or "") for each in found["brokers"]
        ]
        return ClusterDescription(found["cluster_id"], found["controller_id"], sorted(brokers))

    def topics(self, names: Sequence[str] | None = None) -> dict[str, KafkaTopic]:
        with translated(self._cluster):
            found = self._client.describe_topics(None if names is None else [*names])
        return {
            each["name"]: KafkaTopic(
                each["name"], UUID(str(each["topic_id"])), len(each["partitions"]), _copies(each["partitions"])
            )
            for each in found
            if not each["error_code"] and (names is not None or not each["is_internal"])
        }

    def partition_count(self, topic: str) -> int:
        """Raises KafkaRefusal: it does not exist, or the user may not see it."""
        with translated(self._cluster):
            (found,) = self._client.describe_topics([topic])
        if number := found["error_code"]:
            raise KafkaRefusal(number, f'kafka "{self._cluster}": topic {topic}: {errors.for_code(number).message}')
        return len(found["partitions"])

    def create_topics(self, topics: Mapping[str, NewKafkaTopic]) -> dict[str, KafkaRefusal]:
        wanted = {
            name: {"num_partitions": each.partitions, "replication_factor": each.copies, "configs": dict(each.configs)}
            for name, each in topics.items()
        }
        if not wanted:
            return {}
        with translated(self._cluster):
            found = self._client.create_topics(wanted, raise_errors=False)
        return {
            each["name"]: self._refusal(each["name"], each["error_code"], each.get("error_message") or "")
            for each in found["topics"]
            if each["error_code"]
        }

    def delete_topics(self, names: Sequence[str]) -> None:
        if not names:
            return
        with translated(self._cluster):
            found = self._client.delete_topics([*names], raise_errors=False)
        for each in found["topics"]:
            if each["error_code"] not in (0, UNKNOWN_TOPIC):
                raise self._refusal(each["name"], each["error_code"], each.get("error_message") or "")

    def _refusal(self, topic: str, number: int, text: str) -> KafkaRefusal:
        name = errors.for_code(number).message
        return KafkaRefusal(number, f'kafka "{self._cluster}": topic {topic}: {name}: {text}'.rstrip(": "))

    def configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        with translated(self._cluster):
            found = self._client.describe_configs(resources, config_filter="all")
        return {
            topic: {name: entry["value"] for name, entry in entries.items()}
            for by_topic in found.values()
            for topic, entries in by_topic.items()
        }

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        with translated(self._cluster):
            found = self._client.alter_configs([resource], raise_on_unknown=False, incremental=True)
        outcome = found["topic"][topic]
        if outcome != "OK":
            raise KafkaRefusal(INVALID_CONFIG, f'kafka "{self._cluster}": topic {topic}: {outcome}')

    def offsets(self, partitions: Sequence[Partition], at: int) -> dict[Partition, int | None]:
        if not partitions:
            return {}
        isolation = "read_committed" if at == STABLE_END else "read_uncommitted"
        specs = {TopicPartition(*each): END if at == STABLE_END else at for each in partitions}
        with translated(self._cluster):
            found = self._client.list_partition_offsets(specs, isolation)
        by_time = at not in (EARLIEST, END, STABLE_END)
        return {Partition(*key): None if by_time and each.offset < 0 else each.offset for key, each in found.items()}

    def leader_epochs(self, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        with translated(self._cluster):
            found = self._client.list_partition_offsets({TopicPartition(*each): END for each in partitions})
        return {Partition(*key): each.leader_epoch for key, each in found.items()}

    def groups(self) -> dict[str, str]:
        with translated(self._cluster):
            found = self._client.list_groups()
        # An application's group has no protocol as long as it only has positions; others are of connectors.
        kinds = ("", "consumer", "share")
        return {each["group_id"]: each["group_state"] for each in found if each["protocol_type"] in kinds}

    def committed(
        self, group: str, partitions: Collection[Partition] | None = None
    ) -> dict[Partition, CommittedPosition]:
        return {
            Partition(*key): CommittedPosition(each.offset, each.metadata or "")
            for key, each in self._positions_of([group])[group].items()
            if each.offset >= 0
        }

    def committed_on(self, groups: Sequence[str], topics: Mapping[str, int]) -> dict[str, dict[Partition, int]]:
        found: dict[str, dict[Partition, int]] = {}
        for group, positions in in_parts(groups, self._positions_of):
            own = {
                Partition(*key): each.offset
                for key, each in positions.items()
                if key.partition < topics.get(key.topic, 0)
            }
            if own := {key: at for key, at in own.items() if at >= 0}:
                found[group] = own
        return found

    def _positions_of(self, groups: Sequence[str]) -> dict[str, Any]:
        with named(self._cluster, groups), translated(self._cluster):
            found: dict[str, Any] = self._client.list_group_offsets(dict.fromkeys(groups))
        return found

    def subscribed(self, groups: Sequence[str]) -> dict[str, set[str]]:
        return {
            group: {
                each["topic"]
                for member in described["members"]
                for each in (member["member_assignment"] or {}).get("assigned_partitions", ())
            }
            for group, described in in_parts(groups, self._described)
        }  # fmt: skip

    def not_joinable(self, groups: Sequence[str]) -> list[str]:
        return [
            group for group, described in in_parts(groups, self._described)
            if described["group_state"] != "Dead" and "READ" not in described["authorized_operations"]
        ]  # fmt: skip

    def _described(self, groups: Sequence[str]) -> dict[str, Any]:
        with named(self._cluster, groups), translated(self._cluster):
            found: dict[str, Any] = self._client.describe_groups([*groups])
            for each in found.values():
                if each["error"] and each["group_state"] != "Dead":
                    raise fault_of_text(self._cluster, each["error"])
        return found

    def delete_groups(self, groups: Sequence[str]) -> None:
        if not groups:
            return
        with translated(self._cluster):
            found = self._client.delete_groups([*groups])
        for group, outcome in dict(found).items():
            if outcome not in ("OK", errors.GroupIdNotFoundError.__name__):
                raise KafkaRefusal(NON_EMPTY_GROUP, f'kafka "{self._cluster}": group {group}: {outcome}')

    def set_group_offsets(self, group: str, positions: Mapping[Partition, int]) -> None:
        offsets = {TopicPartition(*each): OffsetAndMetadata(at, "", -1) for each, at in positions.items()}
        with translated(self._cluster):
            found = self._client.alter_group_offsets(group, offsets)
        for key, error in found.items():
            if error is not errors.NoError:
                sentence = f'kafka "{self._cluster}": group {group}, {key.topic} {key.partition}: {described(error())}'
                raise KafkaRefusal(error.errno, sentence)

    def close(self) -> None:
        self._client.close()


def _copies(partitions: Sequence[Mapping]) -> int:
    return max((len(each["replica_nodes"]) for each in partitions), default=0)
