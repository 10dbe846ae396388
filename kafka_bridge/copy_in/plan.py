"""The copies that the configuration asks for, as values."""

from typing import NamedTuple

from common.config.definitions import CopyInDefinition, KafkaClusterDefinition, SharedReadDefinition, TopicDefinition
from common.config.definitions.copies import copy_in_claim
from common.config.text_values import KAFKA_HOME
from common.config.view import ConfigView
from common.names import stored_name
from common.placement import Ranges
from engine.client.durability import number_of


class KafkaMembership(NamedTuple):
    """The consumer group on Kafka by which a copy for one group reads: see docs/design/0035-migration.md, "Dual read".

    Attributes:
        group: of both sides.
        message_topic: the topic that messages name, and that the group pulls.
        keeps_order: the group has an order: partitions are given up when what was copied of them is acknowledged.
        begins_at_end: where the group has no position in Kafka yet.
    """

    group: str
    message_topic: str
    keeps_order: bool
    begins_at_end: bool


class CopyPlan(NamedTuple):
    """One copy from Kafka into the engine. A copier that runs by another plan ends.

    Attributes:
        topic: of the engine.
        stored: the topic's stored name, by which engines know it.
        durability: number of the class that every record gets.
        first_offsets: by partition, where the copy begins; partitions beyond them begin at their first record.
        ranges: of the topic's queues, where it is placed on some broker groups.
        membership: of a copy for one group, whose position is the group's; None: the copy is for all groups.
    """

    topic: str
    stored: str
    durability: int
    cluster: KafkaClusterDefinition
    kafka_topic: str
    first_offsets: tuple[int, ...] = ()
    membership: KafkaMembership | None = None
    ranges: Ranges = ()

    @property
    def claim(self) -> str:
        """The name that the copier claims."""
        return copy_in_claim(self.cluster.name, self.kafka_topic, self.topic)


def plans_of(view: ConfigView) -> dict[str, CopyPlan]:
    """All copies for all groups by topic: those of topics whose home is Kafka, and those of entries `copy_in`.

    An entry whose topic or cluster is not defined asks for nothing. A topic with a secondary is not copied: producer
    proxies write each message to both sides themselves. Nor is one that a group reads on both sides: it would get
    everything twice.
    """
    shared = {each.topic for each in view.all_of(SharedReadDefinition)}
    homes = [view.topic(name) for name in view.names_with(TopicDefinition.kind, KAFKA_HOME.encode())]
    found = [_plan(view, topic, topic.kafka_cluster, topic.name) for topic in homes if topic and topic.kafka_cluster]
    for entry in view.all_of(CopyInDefinition):
        definition = view.topic(entry.name)
        if definition is not None and definition.kafka_cluster is None:
            found.append(_plan(view, definition, entry.cluster, entry.topic_of_kafka))
    return {each.topic: each for each in found if each is not None and each.topic not in shared}


def _plan(view: ConfigView, topic: TopicDefinition, cluster: str, kafka_topic: str) -> CopyPlan | None:
    defined = view.kafka_cluster(cluster)
    if defined is None or topic.secondary:
        return None
    return CopyPlan(
        topic.name,
        stored_name(topic.name, topic.made_ms),
        number_of(topic.durability),
        defined,
        kafka_topic,
        topic.first_offsets,
        ranges=topic.ranges,
    )
