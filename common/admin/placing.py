"""Checks of the broker groups that topics are placed in."""

from collections.abc import Iterable

from common.admin.administrator import Administrator
from common.admin.errors import StateConflict
from common.config.broker_group import BrokerGroupDefinition
from common.config.definitions import CopyInDefinition, TopicDefinition
from common.config.errors import InvalidDefinition
from common.config.placed_topics import stored_placed_topics
from common.placement import GROUPS_MAX
from common.quoting import listed, quoted, thing


def check_groups_exist(admin: Administrator, topics: Iterable[TopicDefinition]) -> None:
    """Check that the configuration has the broker groups that these topics name. Raises InvalidDefinition."""
    named = {group: each.name for each in topics for group in each.broker_groups}
    if not named:
        return
    known = admin.store.names(BrokerGroupDefinition.kind, limit=GROUPS_MAX)
    for group, topic in named.items():
        if group not in known:
            rule = f"use {listed(known)}" if known else "the configuration names none: leave it empty"
            raise InvalidDefinition(
                thing(TopicDefinition.kind, topic), [f"broker_groups: {quoted(group)} is no broker group: {rule}"]
            )


def check_change(admin: Administrator, old: TopicDefinition, new: TopicDefinition) -> None:
    """Check that a topic's queues and broker groups may change as its new definition says.

    Raises:
        StateConflict: its queues are another system's partitions, so none may be added.
        InvalidDefinition: it names a broker group that does not exist.
    """
    if new.ranges == old.ranges and new.queues == old.queues:
        return
    check_groups_exist(admin, [new])
    changed, rule = "broker groups", "abort or retire its plan first"
    if new.ranges == old.ranges:
        changed, rule = "queues", "add partitions in Kafka, and its queues follow"
    topic = f"{thing(old.kind, old.name)}: its {changed} cannot change"
    if admin.store.get("migration_topic", old.name) is not None or old.fence is not None or old.secondary:
        raise StateConflict(f"{topic} during a migration: {rule}")
    if old.kafka_cluster is not None or admin.store.taken(CopyInDefinition.kind, [old.name]):
        raise StateConflict(f"{topic} while it is copied from Kafka, where each queue has its partition")


def check_unused(admin: Administrator, broker_group: str) -> None:
    """Check that no topic has queues in a broker group by its name. Raises StateConflict."""
    topics = stored_placed_topics(admin.store).topics
    count = sum(any(broker_group in each.broker_groups for each in topic.ranges) for topic in topics)
    if count:
        raise StateConflict(
            f"broker group {broker_group}: {count:,} topics are placed in it: see `penstock broker-group topics`"
        )
