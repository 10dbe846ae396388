"""Whether the messages that were copied to Kafka last are those that the engine has.

Positions alone do not tell that the engine was put back to an older copy, or that a broker leads that has less, and that it
has got other messages since: these have offsets that are copied already.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from common.kafka.base import PartitionReader
from common.kafka.copy_mark import COPY_HEADER, content_hash, parse_copy_mark
from common.kafka.errors import KafkaFault
from common.kafka.group_admin import CommittedPosition
from common.kafka.records import Partition, Records
from common.kafka.repair_mark import REPAIR_NAME
from engine.client.single_reads import FoundMessage
from kafka_bridge.copy_out.page import EngineTopic
from kafka_bridge.copy_out.positions import SEARCH_POLLS_MAX, SEARCH_WAIT_S, note_of
from kafka_bridge.mapping import ID_HEADER, record_of

FIRST_SPAN, GROWTH = 50, 8


class TailDiffers(Exception):
    """Messages were copied that the engine has not. The text says from where on, and what to do."""


class CopiedMessage(NamedTuple):
    """What a record of Kafka tells of the message. Attributes: offset: in the engine."""

    offset: int
    shown: bytes | None
    content: bytes

    def is_at(self, found: FoundMessage) -> bool:
        """Whether the engine has the message; retention may have deleted it."""
        if found.record is None:
            return found.is_deleted
        key, value, headers = record_of(found.record.message, found.record.assigned_id or None, allows_reserved=True)
        return (self.shown, self.content) == (dict(headers).get(ID_HEADER), content_hash(key, value))


def is_to_check(committed: CommittedPosition | None, place: EngineTopic, topic_id: UUID) -> bool:
    """Whether a position is the copy's own: one without a note is an operator's word."""
    return committed is None or committed.note.startswith(note_of(place, topic_id))


class CopiedTails:
    """
    Args:
        reader: of committed records.
        message_at: the engine's message at an offset of a queue.
        group: whose positions are those of the copy.
    """

    def __init__(self, reader: PartitionReader, message_at: Callable[[int, int], FoundMessage], group: str) -> None:
        self._reader, self._message_at, self._group = reader, message_at, group

    def fault(self, partition: Partition, place: EngineTopic, first: int, end: int) -> str:
        """Why the last messages that were copied to a partition are not the engine's; empty: they are.

        Args:
            place: the engine's topic.
            first, end: offsets in Kafka between which its copies are.
        Raises:
            KafkaFault. AdminError, OSError, LinkError: of the engine.
        """
        at = self._first_other(partition, place, first, end)
        if at is None:
            return ""
        return (
            f"topic {partition.topic} queue {partition.number}: from offset {at:,} on the engine has not the messages that were "
            "copied to Kafka from there: it was put back to an older copy, or has lost them, and its new messages have their "
            f"offsets: copy these by setting the position of group {self._group} in partition {partition.number} to {at}, by "
            "Kafka's own tool; what is in Kafka only `penstock migrate verify --all` shows then"
        )

    def _first_other(self, partition: Partition, place: EngineTopic, first: int, end: int) -> int | None:
        span, lower = FIRST_SPAN, end
        while lower > first:
            lower = max(first, end - span)
            found = self._copied(partition, place, lower, end)
            if found and self._has(partition, found[-1]):
                return None
            if found and (lower == first or self._has(partition, found[0])):
                return self._bisected(partition, found)
            span *= GROWTH
        return None

    def _bisected(self, partition: Partition, found: list[CopiedMessage]) -> int:
        """The offset of the first message that the engine has not; it has not the last one."""
        low, high = 0, len(found) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._has(partition, found[middle]) else (low, middle)
        return found[high].offset

    def _has(self, partition: Partition, copied: CopiedMessage) -> bool:
        return copied.is_at(self._message_at(partition.number, copied.offset))

    def _copied(self, partition: Partition, place: EngineTopic, lower: int, end: int) -> list[CopiedMessage]:
        """The copies among the records between two offsets, in Kafka's order."""
        self._reader.assign({partition: lower})
        self._reader.resume([partition])  # librdkafka keeps the pause of an earlier assignment
        found: list[CopiedMessage] = []
        polls = 0
        while self._reader.positions()[partition] < end:
            for records in self._reader.poll(SEARCH_WAIT_S):
                if records.partition == partition:
                    found += _copied_in(records, place)
            if (polls := polls + 1) > SEARCH_POLLS_MAX:
                raise KafkaFault(f"{partition.topic} {partition.number}: the last copied record was not found")
        return found


def _copied_in(records: Records, place: EngineTopic) -> list[CopiedMessage]:
    found = []
    for headers, key, value in zip(records.headers, records.keys, records.values, strict=True):
        named = dict(headers)
        mark = parse_copy_mark(named.get(COPY_HEADER))
        if mark is None or REPAIR_NAME in named or not mark.matches(key, value):
            continue  # a repair is written out of its order
        if (mark.log_id, mark.topic_id, mark.queue) == (*place, records.partition.number):
            found.append(CopiedMessage(mark.offset, named.get(ID_HEADER), mark.content_hash))
    return found


def places_to_check(
    topic: str, topic_id: UUID, places: Mapping[int, EngineTopic], positions: Mapping[int, int],
    committed: Mapping[Partition, CommittedPosition],
) -> dict[Partition, EngineTopic]:  # fmt: skip
    """The partitions of a topic to which something was copied, and whose position is the copy's own."""
    found = {Partition(topic, queue): places[queue] for queue in positions}
    return {each: place for each, place in found.items() if is_to_check(committed.get(each), place, topic_id)}
