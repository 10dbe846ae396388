"""Kafka clusters: add, list, show, set, remove."""

from common.admin import administrator as verbs
from common.admin import topics
from common.admin.administrator import Administrator
from common.admin.errors import StateConflict
from common.config.definitions import (
    CLUSTERS_MAX,
    SHARED_READS_MAX,
    CopyInDefinition,
    CopyOutDefinition,
    KafkaClusterDefinition,
    SharedReadDefinition,
)
from common.config.definitions.copies import COPIES_MAX
from common.config.setting import Changes
from common.quoting import thing

PAGE = 10_000
SHOWN_MAX = 5


class KafkaClusterSettings(Changes):
    """Settings of a Kafka cluster."""

    definition = KafkaClusterDefinition


def add(admin: Administrator, name: str, settings: KafkaClusterSettings) -> KafkaClusterDefinition:
    """Add a cluster. Raises InvalidDefinition, VersionConflict."""
    made = KafkaClusterDefinition.from_value(name, settings.given())
    verbs.create(admin, [made])
    return made


def list_clusters(admin: Administrator) -> list[KafkaClusterDefinition]:
    """All clusters by name. Raises InvalidDefinition."""
    return verbs.page(admin, KafkaClusterDefinition, "", "", CLUSTERS_MAX)


def show(admin: Administrator, name: str) -> tuple[KafkaClusterDefinition, int]:
    """The cluster and its version. Raises EntryNotFound."""
    return verbs.get(admin, KafkaClusterDefinition, name)


def set_cluster(admin: Administrator, name: str, settings: KafkaClusterSettings) -> KafkaClusterDefinition:
    """Change how a cluster is reached. The bridge connects again. Raises EntryNotFound, InvalidDefinition."""
    return verbs.set_settings(admin, KafkaClusterDefinition, name, settings)


def remove(admin: Administrator, name: str) -> None:
    """Remove a cluster.

    Raises:
        EntryNotFound
        StateConflict: it is the home or the secondary of topics, whose messages could not be sent any more, or a copy
            uses it.
    """
    if at_home := topics_of(admin, name):
        more = f" and {len(at_home) - SHOWN_MAX:,} more" if len(at_home) > SHOWN_MAX else ""
        raise StateConflict(
            f"{thing(KafkaClusterDefinition.kind, name)}: it is the home or the secondary of topics {', '.join(at_home[:SHOWN_MAX])}"
            f"{more}: delete them first"
        )
    if copied := copies_of(admin, name):
        raise StateConflict(
            f"{thing(KafkaClusterDefinition.kind, name)}: topic {copied[0]} is copied: end its copy first"
        )
    if shared := shared_reads_of(admin, name):
        raise StateConflict(
            f"{thing(KafkaClusterDefinition.kind, name)}: group {shared[0].group} reads topic {shared[0].topic} there, "
            "too: end the dual read first"
        )
    verbs.delete(admin, KafkaClusterDefinition, name)


def copies_of(admin: Administrator, name: str) -> list[str]:
    """The topics of the engine that are copied from or to the cluster."""
    kinds = (CopyInDefinition, CopyOutDefinition)
    found = [each for kind in kinds for each in verbs.page(admin, kind, "", "", COPIES_MAX, lambda error: None)]
    return [each.name for each in found if each.cluster == name]


def shared_reads_of(admin: Administrator, name: str) -> list[SharedReadDefinition]:
    """The dual reads whose groups have members on the cluster."""
    found = verbs.page(admin, SharedReadDefinition, "", "", SHARED_READS_MAX, lambda error: None)
    return [each for each in found if each.cluster == name]


def topics_of(admin: Administrator, name: str) -> list[str]:
    """The topics whose home or secondary the cluster is. Reads every topic."""
    found: list[str] = []
    after = ""
    while True:
        page = topics.list_topics(admin, "", after, PAGE, on_unreadable=lambda error: None)
        found += [each.name for each in page if name in each.kafka_clusters]
        if len(page) < PAGE:
            return found
        after = page[-1].name
