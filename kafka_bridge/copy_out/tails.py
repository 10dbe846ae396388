"""Whether the messages that were copied to Kafka last are those that the engine has.

Positions alone do not tell that the engine was put back to an older copy, or that a broker leads that has less, and that it
has got other messages since: these have offsets that are copied already.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from common.kafka.base import PartitionReader
from common.kafka.copy_mark import COPY_HEADER, content_hash, parse_copy_mark
from common.kafka.errors import KafkaFault
from common.kafka.group_admin import CommittedPosition
from common.kafka.records import Partition, Records
from common.kafka.repair_mark import REPAIR_NAME
from engine.client.single_reads import MessageAt
from kafka_bridge.copy_out.page import EngineTopic
from kafka_bridge.copy_out.positions import SEARCH_POLLS_MAX, SEARCH_WAIT_S, note_of
from kafka_bridge.mapping import ID_HEADER, record_of

FIRST_SPAN, GROWTH = 50, 8


class TailDiffers(Exception):
    """Messages were copied that the engine has not. The text says from where on, and what to do."""


class MarkedMessage(NamedTuple):
    """What a record of Kafka tells of the message. Attributes: offset: in the engine."""

    offset: int
    shown: bytes | None
    content: bytes

    def is_at(self, found: MessageAt) -> bool:
        """Whether the engine has the message; retention may have deleted it."""
        if found.record is None:
            return found.is_deleted
        key, value, headers = record_of(found.record.message, found.record.assigned_id or None, allows_reserved=True)
        return (self.shown, self.content) == (dict(headers).get(ID_HEADER), content_hash(key, value))


def is_to_check(committed: CommittedPosition | None, place: EngineTopic, topic_id: UUID) -> bool:
    """Whether a position is the copy's own: one without a note is an operator's word."""
    return committed is None or committed.note.startswith(note_of(place, topic_id))


class TailRange(NamedTuple):
    """Where the copies of an engine's topic are in a partition. Attributes: first, end: offsets in Kafka."""

    place: EngineTopic
    first: int
    end: int


class CopiedTails:
    """
    Args:
        reader: of committed records.
        message_at: the engine's message at an offset of the queue of this partition.
        group: whose positions are those of the copies.
    """

    def __init__(self, reader: PartitionReader, message_at: Callable[[Partition, int], MessageAt], group: str) -> None:
        self._reader, self._message_at, self._group = reader, message_at, group

    def faults(self, asked: Mapping[Partition, TailRange]) -> dict[Partition, str]:
        """By partition, why the last messages that were copied to it are not the engine's; the others are.

        Raises KafkaFault. AdminError, OSError, LinkError: of the engine.
        """
        return {each: self._sentence(each, at) for each, at in self._first_others(asked).items()}

    def _sentence(self, partition: Partition, at: int) -> str:
        return (
            f"topic {partition.topic} queue {partition.number}: from offset {at:,} on the engine has not the messages that were "
            "copied to Kafka from there: it was put back to an older copy, or has lost them, and its new messages have their "
            f"offsets: {set_position(self._group, partition, at)}"
        )

    def _first_others(self, asked: Mapping[Partition, TailRange]) -> dict[Partition, int]:
        """The offset of the first message that the engine has not, of partitions whose last one it has not."""
        left, span, others = dict(asked), FIRST_SPAN, {}
        while left:
            lower = {each: max(at.first, at.end - span) for each, at in left.items()}
            for each, found in self._copied(lower, left).items():
                if found and self._has(each, found[-1]):
                    del left[each]
                elif found and (lower[each] == left[each].first or self._has(each, found[0])):
                    others[each] = self._bisected(each, found)
                    del left[each]
                elif lower[each] == left[each].first:
                    del left[each]
            span *= GROWTH
        return others

    def _bisected(self, partition: Partition, found: list[MarkedMessage]) -> int:
        """The offset of the first message that the engine has not; it has not the last one."""
        low, high = 0, len(found) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._has(partition, found[middle]) else (low, middle)
        return found[high].offset

    def _has(self, partition: Partition, copied: MarkedMessage) -> bool:
        return copied.is_at(self._message_at(partition, copied.offset))

    def _copied(
        self, lower: Mapping[Partition, int], asked: Mapping[Partition, TailRange]
    ) -> dict[Partition, list[MarkedMessage]]:
        """The copies among the records between two offsets of each partition, in Kafka's order."""
        found: dict[Partition, list[MarkedMessage]] = {each: [] for each in lower}
        for records in read_between(self._reader, lower, {each: asked[each].end for each in lower}):
            found[records.partition] += _copied_in(records, asked[records.partition].place)
        return found


def read_between(
    reader: PartitionReader, lower: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> Iterator[Records]:
    """The records between two offsets of each partition, and some behind them. Raises KafkaFault."""
    reader.assign(dict(lower))
    reader.resume([*lower])  # librdkafka keeps the pause of an earlier assignment
    before, silent = dict(lower), 0
    while behind := [each for each, at in reader.positions().items() if at < ends[each]]:
        yield from (records for records in reader.poll(SEARCH_WAIT_S) if records.partition in lower)
        now = dict(reader.positions())
        before, silent = now, silent + 1 if now == before else 0
        if silent > SEARCH_POLLS_MAX:
            raise KafkaFault(f"{behind[0].topic} {behind[0].number}: the last records were not read")


def _copied_in(records: Records, place: EngineTopic) -> list[MarkedMessage]:
    found = []
    for headers, key, value in zip(records.headers, records.keys, records.values, strict=True):
        named = dict(headers)
        mark = parse_copy_mark(named.get(COPY_HEADER))
        if mark is None or REPAIR_NAME in named or not mark.matches(key, value):
            continue  # a repair is written out of its order
        if (mark.log_id, mark.topic_id, mark.queue) == (*place, records.partition.number):
            found.append(MarkedMessage(mark.offset, named.get(ID_HEADER), mark.content_hash))
    return found


def set_position(group: str, partition: Partition, at: int) -> str:
    """The remedy, for a sentence: the operator sets the position, so that the messages are copied."""
    return (
        f"copy these by setting the position of group {group} in partition {partition.number} to {at}, by Kafka's own tool; "
        "what is in Kafka only `penstock migrate verify --all` shows then"
    )


def places_to_check(
    topic: str, topic_id: UUID, places: Mapping[int, EngineTopic], positions: Mapping[int, int],
    committed: Mapping[Partition, CommittedPosition],
) -> dict[Partition, EngineTopic]:  # fmt: skip
    """The partitions of a topic to which something was copied, and whose position is the copy's own."""
    found = {Partition(topic, queue): places[queue] for queue in positions}
    return {each: place for each, place in found.items() if is_to_check(committed.get(each), place, topic_id)}
