"""Positions of a copy to Kafka: next engine offset per queue, in a group of Kafka, committed with the records.

Where the group has lost one, the last copied record of the partition tells it.
"""

from contextlib import closing
from uuid import UUID

from common.config.definitions.copies import CopyOutDefinition
from common.kafka.base import EARLIEST, STABLE_END, ClusterAdmin, KafkaDriver, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.copy_mark import COPY_HEADER, parse_copy_mark
from common.kafka.errors import KafkaFault
from common.kafka.records import Partition, Records
from common.kafka.repair_mark import REPAIR_NAME
from kafka_bridge.copy_out.page import EngineTopic

SEARCH_RECORDS = 1_000
SEARCH_WAIT_S, SEARCH_POLLS_MAX = 0.5, 120


def position_group(copy: CopyOutDefinition) -> str:
    """The group of Kafka whose positions are the copy's: next offsets of the engine. It never has members."""
    return f"penstock.copy.{copy.plan or copy.name}"


def transactional_id(copy: CopyOutDefinition) -> str:
    """The same for all copiers of one copy, whatever queues it has: so a newer copier fences an older one."""
    return f"penstock.copy.{copy.plan or 'operator'}.{copy.name}"


def topic_id_of(admin: ClusterAdmin, topic: str) -> UUID:
    """Raises KafkaFault: the topic does not exist."""
    found = admin.topics([topic]).get(topic)
    if found is None:
        raise KafkaFault(f'kafka topic "{topic}": it does not exist: create it there')
    return found.id


class StartingPositions:
    """Reads the positions of one copy. To be asked after the copier's producer is open: it has ended what was open."""

    def __init__(
        self, driver: KafkaDriver, connection: KafkaConnection, admin: ClusterAdmin, copy: CopyOutDefinition
    ) -> None:
        self._driver, self._connection, self._admin, self._copy = driver, connection, admin, copy

    def of(self, places: dict[int, EngineTopic]) -> dict[int, int]:
        """Next offset per queue; a queue of which nothing was copied is left out. Raises KafkaFault."""
        committed = self._admin.group_offsets(position_group(self._copy))
        found = {}
        for queue, place in places.items():
            partition = Partition(self._copy.topic_of_kafka, queue)
            position = committed.get(partition)
            if position is None:
                position = self._after_last_mark(partition, place)
            if position is not None:
                found[queue] = position
        return found

    def _after_last_mark(self, partition: Partition, place: EngineTopic) -> int | None:
        """The engine offset after the last record that was copied to a partition; None: there is none."""
        first = self._admin.offsets([partition], EARLIEST)[partition] or 0
        end = upper = self._admin.offsets([partition], STABLE_END)[partition] or 0
        span = SEARCH_RECORDS
        with closing(self._driver.reader(self._connection, ReaderOptions())) as reader:
            while upper > first:
                lower = max(first, end - span)
                reader.assign({partition: lower})
                found, polls = None, 0
                while reader.positions()[partition] < upper:
                    for records in reader.poll(SEARCH_WAIT_S):
                        found = _last_mark(records, place, found)
                    if (polls := polls + 1) > SEARCH_POLLS_MAX:
                        raise KafkaFault(f"{partition.topic} {partition.number}: the last copied record was not found")
                if found is not None:
                    return found + 1
                upper, span = lower, span * 4
        return None


def _last_mark(records: Records, place: EngineTopic, found: int | None) -> int | None:
    """The engine offset in the last mark of these records that names the topic; else `found`."""
    for headers in records.headers:
        if any(name == REPAIR_NAME for name, _ in headers):
            continue  # it was written out of its order
        for name, value in headers:
            mark = parse_copy_mark(value) if name == COPY_HEADER else None
            if mark is not None and (mark.log_id, mark.topic_id) == place:
                found = max(mark.offset, -1 if found is None else found)
    return found
