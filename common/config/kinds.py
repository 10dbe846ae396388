"""The definitions of the configuration by kind."""

from common.config.broker_group import BrokerGroupDefinition
from common.config.definition import Definition
from common.config.definitions import (
    ApplicationDefinition,
    CopyInDefinition,
    CopyOutDefinition,
    FamilyDefinition,
    GroupDefinition,
    KafkaClusterDefinition,
    SharedReadDefinition,
    TopicDefinition,
)

_CLASSES: tuple[type[Definition], ...] = (
    TopicDefinition, FamilyDefinition, GroupDefinition, ApplicationDefinition, BrokerGroupDefinition,
    KafkaClusterDefinition, CopyInDefinition, CopyOutDefinition, SharedReadDefinition,
)  # fmt: skip
DEFINITIONS: dict[str, type[Definition]] = {each.kind: each for each in _CLASSES}
