"""The last records that were copied for a group: whether Kafka still has them, and whether the engine still has their copies.

A group's position alone does not tell. Kafka may have been put back to an older copy of its data and filled again, and so
may the engine.
"""

from collections.abc import Callable, Mapping

from common.kafka.base import EARLIEST, END, STABLE_END, ClusterAdmin, KafkaTopic, PartitionReader
from common.kafka.errors import KafkaFault, KafkaRefusal
from common.kafka.records import Partition
from common.quoting import quoted
from kafka_bridge.copy_in.core import PartitionBounds
from kafka_bridge.copy_in.last_copied import LastCopied
from kafka_bridge.copy_in.status import KafkaSide, without_last_copied

READ_S = 5.0
"""A record that is not read in this time counts as not changed."""


class ReadAgain(Exception):
    """The engine has lost copies: the group's positions go back to these. The text says so."""

    def __init__(self, positions: Mapping[Partition, int], sentence: str) -> None:
        super().__init__(sentence)
        self.positions = positions


class LastRecords:
    """Reads single records, by one reader that is opened at the first use. For one thread."""

    def __init__(self, admin: ClusterAdmin, open_reader: Callable[[], PartitionReader]) -> None:
        self._admin, self._open_reader = admin, open_reader
        self._reader: PartitionReader | None = None

    def lost(self, cluster_id: str, topic: KafkaTopic, last: Mapping[Partition, LastCopied]) -> set[Partition]:
        """The partitions in which Kafka has another record, or none, at the offset of the one that was copied last.

        Where Kafka has deleted that offset, nothing is known. Raises KafkaFault.
        """
        if not last:
            return set()
        asked = [*last]
        starts, ends, stable = (self._admin.offsets(asked, at) for at in (EARLIEST, END, STABLE_END))
        side = KafkaSide(
            cluster_id,
            topic,
            {each.number: PartitionBounds(starts[each] or 0, ends[each] or 0) for each in asked},
            {each.number: min(stable[each] or 0, ends[each] or 0) for each in asked},
        )
        self._reader = self._reader or self._open_reader()
        found = without_last_copied(self._reader, last, side, READ_S)
        self._reader.remove(asked)
        return found if found and not self._is_compacted(topic) else set()

    def _is_compacted(self, topic: KafkaTopic) -> bool:
        """Whether Kafka deletes records in the middle."""
        try:
            return "compact" in self._admin.configs([topic.name])[topic.name].get("cleanup.policy", "")
        except KafkaRefusal:  # the user may read the topic, and may not ask
            return False

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class PutBackBelow(KafkaFault):
    """The group's position is beyond records that Kafka has lost and has others for."""

    def __init__(self, group: str, partition: Partition, last: LastCopied) -> None:
        super().__init__(
            f"kafka topic {quoted(partition.topic)} partition {partition.number} offset {last.offset:,}: it has not the record "
            f"that was copied from there: Kafka has lost records, and others have their offsets, which group {group} has "
            f"not read: give the group the offset of the first of those as its position, by Kafka's own tool, while it has "
            f"no members; {last.offset} or less goes on"
        )
