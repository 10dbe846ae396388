"""The copies of dual read that the configuration asks for, as values."""

from common.config.definitions import GroupDefinition, SharedReadDefinition
from common.config.view import ConfigView
from common.names import stored_name
from engine.client.durability import number_of
from kafka_bridge.copy_in.plan import CopyPlan, KafkaMembership

SYNCED = {
    "memory": "fsync", "fsync": "fsync", "replicated": "replicated_fsync", "replicated_fsync": "replicated_fsync"
}  # fmt: skip
"""Durability of copies by that of the topic. The offset that is committed in Kafka does not go back with the engine's
log, so a copy has to be on disk before it."""


def shared_plans_of(view: ConfigView) -> dict[str, CopyPlan]:
    """All copies for one group, by hidden topic.

    An entry that ends, or whose topic or cluster is not defined, asks for nothing.
    """
    found = [_plan(view, each) for each in view.all_of(SharedReadDefinition)]
    return {each.topic: each for each in found if each is not None}


def _plan(view: ConfigView, entry: SharedReadDefinition) -> CopyPlan | None:
    topic, cluster = view.topic(entry.topic), view.kafka_cluster(entry.cluster)
    if topic is None or cluster is None or entry.is_ending:
        return None
    group = view.group(entry.group) or GroupDefinition(entry.group)
    membership = KafkaMembership(entry.group, entry.topic, group.order != "none", group.start == "latest")
    return CopyPlan(
        entry.name,
        stored_name(entry.name, entry.made_ms),
        number_of(SYNCED[topic.durability]),
        cluster,
        entry.topic_of_kafka,
        membership=membership,
    )
