"""The configuration of a rehearsal's Penstock: the real cluster, copies of topics and groups, one application."""

import secrets
import time
from dataclasses import replace
from pathlib import Path

from common.config import open_store
from common.config.definitions import (
    ApplicationDefinition,
    Grant,
    GroupDefinition,
    KafkaClusterDefinition,
    Key,
    TopicDefinition,
)
from common.config.store import ConfigStore
from common.config.text_values import KAFKA_HOME
from migration.plan import DOUBLE_READ
from migration.rehearsal.load import LoadAccess
from migration.rehearsal.names import RehearsalNames
from penstock.up.directory import prepare

APP, KEY_ID = "rehearsal", "rehearsal-key"


def write_definitions(
    real: ConfigStore, data: Path, names: RehearsalNames, cluster: KafkaClusterDefinition, partitions: dict[str, int]
) -> LoadAccess:
    """Write the configuration into a new data directory. Of `real` it only reads.

    Args:
        partitions: of each real topic.
    """
    prepare(data)
    store = open_store((data / "config").as_uri())
    access = LoadAccess(APP, KEY_ID, secrets.token_hex(32))
    try:
        store.put(KafkaClusterDefinition.kind, cluster.name, cluster.to_value(), 0)
        for group in _groups(real, names):
            store.put(GroupDefinition.kind, group.name, group.to_value(), 0)
        for topic in _topics(real, names, partitions):
            store.put(TopicDefinition.kind, topic.name, topic.to_value(), 0)
        key = Key(access.key_id, access.secret, int(time.time() * 1000))
        application = ApplicationDefinition(APP, (key,), (Grant("send", "*"), Grant("pull", "*")))
        store.put(ApplicationDefinition.kind, APP, application.to_value(), 0)
    finally:
        store.close()
    return access


def _groups(real: ConfigStore, names: RehearsalNames) -> list[GroupDefinition]:
    """The copies of the plan's groups, with the settings of the real ones; of a mirror, the readers as well."""
    topics, found = tuple(names.topics.values()), []
    for name, copy in names.groups.items():
        entry = real.get(GroupDefinition.kind, name)
        base = GroupDefinition(name) if entry is None else GroupDefinition.from_value(name, entry.value)
        found.append(replace(base, name=copy, topics=topics))
    if names.plan.recipe != DOUBLE_READ:
        found.append(GroupDefinition(names.readers, topics=topics))
    return found


def _topics(real: ConfigStore, names: RehearsalNames, partitions: dict[str, int]) -> list[TopicDefinition]:
    """Copies of topics that are defined here already, as they are before a move; a plan makes the others."""
    found = []
    for name, copy in names.topics.items():
        entry = real.get(TopicDefinition.kind, name)
        if entry is not None and names.plan.recipe != DOUBLE_READ:
            base = TopicDefinition.from_value(name, entry.value)
            found.append(
                replace(
                    base, name=copy, queues=partitions[name], home=KAFKA_HOME + names.plan.cluster, secondary="",
                    fence=None, cut=None, id_window_ms=0,
                )
            )  # fmt: skip
    return found
