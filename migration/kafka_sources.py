"""Whether the topics in Kafka are those that the figures of a plan belong to, and whether their copies can go on.

A source is known by cluster id, topic id and partition. A figure of another source, such as the position of a copy of a
topic that was deleted since, is no figure.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from common.config.definitions import CutRecord
from common.kafka.base import EARLIEST, ClusterAdmin, KafkaTopic
from common.kafka.codes import TOPIC_AUTHORIZATION_FAILED
from common.kafka.errors import KafkaFault, KafkaRefusal
from common.kafka.records import Partition
from common.quoting import quoted
from engine.link.copy import SourceState
from kafka_bridge.copy_in.core import Halt, PartitionBounds, first_step
from kafka_bridge.source_identity import source_of
from migration.sub_steps.sub_step import shown


class SourcesSeen(NamedTuple):
    """The topics of a plan that exist in Kafka, and the first offset of each partition.

    Ask for it before positions of copies, and for end offsets after them: what is copied or deleted meanwhile is then
    taken neither for a source that has lost records nor for one that is away.
    """

    cluster_id: str
    topics: Mapping[str, KafkaTopic]
    starts: Mapping[Partition, int]

    def partitions(self, names: Collection[str]) -> dict[str, int]:
        """Numbers of partitions, without topics that do not exist."""
        return {name: self.topics[name].partitions for name in names if name in self.topics}


class KafkaSources:
    """
    Args:
        kafka: opens the cluster at the first use.
    """

    def __init__(self, kafka: Callable[[], ClusterAdmin], cluster: str) -> None:
        self._kafka, self._cluster, self._cluster_id = kafka, cluster, ""

    def look(self, names: Collection[str]) -> SourcesSeen:
        """Raises KafkaFault, also KafkaRefusal for a topic that the user may not see."""
        kafka = self._kafka()
        self._cluster_id = self._cluster_id or kafka.describe().cluster_id
        topics = kafka.topics([*names]) if names else {}
        for name in (each for each in names if each not in topics):
            _check_permission(kafka, name)
        asked = [Partition(name, number) for name, each in topics.items() for number in range(each.partitions)]
        starts = {each: at or 0 for each, at in kafka.offsets(asked, EARLIEST).items()} if asked else {}
        return SourcesSeen(self._cluster_id, topics, starts)

    def foreign(self, name: str, seen: SourcesSeen, rows: Sequence[SourceState], cut: CutRecord | None) -> str:
        """Why the topic in Kafka is not the one that the plan's figures belong to; empty: it is.

        Args:
            rows: the states of the queues that are copied from it; empty: it is not copied.
            cut: the record that holds now; None: none does.
        """
        topic = seen.topics.get(name)
        where = f"kafka {quoted(self._cluster)}: topic {quoted(name)}"
        if topic is None:
            return f"{where}: it does not exist there, or its user may not see it"
        if cut is not None and cut.kafka_topic_id != str(topic.id):
            return (
                f"{where}: it was deleted and made again since the change of its sides, or belongs to another cluster (topic id "
                f"{topic.id}, then {cut.kafka_topic_id}): what Kafka had then is not there"
            )
        sources = [source_of(seen.cluster_id, topic, partition) for partition in range(len(rows))]
        found = [str(number) for number, row in enumerate(rows) if row.number and row.source != sources[number]]
        if not found:
            return ""
        partitions = f"partition{'s' if len(found) > 1 else ''} {shown(found)}"
        return (
            f"kafka topic {quoted(name)} {partitions}: the topic was deleted and made again, or belongs to another cluster: "
            f"copy the new one by `penstock kafka accept {name} --reason TEXT`"
        )

    def losses(
        self, name: str, seen: SourcesSeen, rows: Sequence[SourceState], ends: Sequence[int]
    ) -> dict[int, str]:  # fmt: skip
        """By partition: why its copy stands still although the topic is the same one, with what Kafka has lost."""
        topic, found = seen.topics.get(name), {}
        for number, row in enumerate(rows[: topic.partitions] if topic is not None else ()):
            assert topic is not None
            source, place = source_of(seen.cluster_id, topic, number), Partition(name, number)
            bounds = PartitionBounds(seen.starts.get(place, 0), ends[number])
            step = first_step(name, place, row, source, bounds, 0)
            if isinstance(step, Halt):
                found[number] = step.sentence
        return found


def _check_permission(kafka: ClusterAdmin, name: str) -> None:
    """Raise the refusal of a topic that exists and is hidden from this user: a list of topics leaves it out."""
    try:
        kafka.offsets([Partition(name, 0)], EARLIEST)
    except KafkaFault as fault:
        if isinstance(fault, KafkaRefusal) and fault.number == TOPIC_AUTHORIZATION_FAILED:
            raise
