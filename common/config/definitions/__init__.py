"""Definitions of topics, families, groups, applications, Kafka clusters, copies and dual reads, with their settings' bounds."""

from common.config.definitions.application import (
    DEAD_LETTERS,
    KEY_FIELDS,
    LIVE_KEYS_MAX,
    PULL,
    PULL_GROUP,
    PULL_TOPIC,
    SEND,
    ApplicationDefinition,
    DerivedKey,
    Grant,
    Key,
)
from common.config.definitions.common import GRADES, ORDERS, RATE_BYTES_MAX, RATE_MESSAGES_MAX, RETENTION_MS_MAX
from common.config.definitions.copies import COPIES_MAX, CopyDefinition, CopyInDefinition, CopyOutDefinition
from common.config.definitions.group import ON_FAILURE, GroupDefinition
from common.config.definitions.kafka import CLUSTERS_MAX, KafkaClusterDefinition
from common.config.definitions.moves import FENCE_MS_MAX, CutRecord, Fence
from common.config.definitions.shared_read import SHARED_READS_MAX, SharedReadDefinition
from common.config.definitions.topic import (
    DELAY_MS_MAX,
    DURABILITIES,
    QUEUES_MAX,
    REQUIRED_GROUPS_MAX,
    FamilyDefinition,
    TopicDefinition,
)

__all__ = [
    "CLUSTERS_MAX",
    "COPIES_MAX",
    "DEAD_LETTERS",
    "DELAY_MS_MAX",
    "DURABILITIES",
    "FENCE_MS_MAX",
    "GRADES",
    "KEY_FIELDS",
    "LIVE_KEYS_MAX",
    "ON_FAILURE",
    "ORDERS",
    "PULL",
    "PULL_GROUP",
    "PULL_TOPIC",
    "QUEUES_MAX",
    "RATE_BYTES_MAX",
    "RATE_MESSAGES_MAX",
    "REQUIRED_GROUPS_MAX",
    "RETENTION_MS_MAX",
    "SEND",
    "SHARED_READS_MAX",
    "ApplicationDefinition",
    "CopyDefinition",
    "CopyInDefinition",
    "CopyOutDefinition",
    "CutRecord",
    "DerivedKey",
    "FamilyDefinition",
    "Fence",
    "Grant",
    "GroupDefinition",
    "KafkaClusterDefinition",
    "Key",
    "SharedReadDefinition",
    "TopicDefinition",
]
