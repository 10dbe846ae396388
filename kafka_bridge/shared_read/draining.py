"""The drain rule of groups with an order: the engine's side begins when Kafka's side is read to the cut, and acknowledged.

See docs/design/0035-migration.md, "Dual read". What is asked are Kafka and the engine, so any bridge may decide it.
"""

from common.config.definitions import SharedReadDefinition, TopicDefinition
from common.config.store import ConfigStore
from common.config.text_values import ENGINE_HOME
from common.kafka.base import EARLIEST, ClusterAdmin
from common.kafka.records import Partition
from kafka_bridge.copy_in.engine_queues import EngineQueues
from kafka_bridge.copy_in.plan import CopyPlan


def note_drained(store: ConfigStore, plan: CopyPlan, admin: ClusterAdmin, queues: EngineQueues) -> bool:
    """Mark the dual read as drained once it is; returns whether this call has marked it.

    Raises KafkaFault, ConfigError, AdminError, LinkError, OSError.
    """
    found = store.get(SharedReadDefinition.kind, plan.topic)
    if found is None or found.value.get("is_drained"):
        return False
    ends = _cut_ends(store, plan)
    if not ends or not _is_drained(plan, admin, queues, ends):
        return False
    store.put(SharedReadDefinition.kind, plan.topic, {**found.value, "is_drained": True}, found.version)
    return True


def _cut_ends(store: ConfigStore, plan: CopyPlan) -> tuple[int, ...]:
    """Kafka's offsets, per partition, below which everything was sent before the cut; empty: it is not cut."""
    assert plan.membership is not None
    name = plan.membership.message_topic
    found = store.get(TopicDefinition.kind, name)
    topic = TopicDefinition.from_value(name, found.value) if found is not None else None
    if topic is None or topic.home != ENGINE_HOME or topic.cut is None or topic.cut.cluster != plan.cluster.name:
        return ()
    return topic.cut.kafka_ends


def _is_drained(plan: CopyPlan, admin: ClusterAdmin, queues: EngineQueues, ends: tuple[int, ...]) -> bool:
    assert plan.membership is not None
    group = plan.membership.group
    partitions = [Partition(plan.kafka_topic, number) for number in range(len(ends))]
    committed, starts = admin.group_offsets(group), admin.offsets(partitions, EARLIEST)
    if any(committed.get(each, starts[each] or 0) < end for each, end in zip(partitions, ends, strict=True)):
        return False
    # After the positions: what was committed by a bridge is stored before.
    return not any(each.messages for home in queues.groups for each in queues.lags(home, group))
