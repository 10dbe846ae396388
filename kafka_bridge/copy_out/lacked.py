"""Whether Kafka has the engine's messages below an offset that is known to be copied: the newest of them is looked for.

Positions and ends do not tell it: Kafka may have been put back to an older copy, or have lost its newest records, and have got
others since; and an engine that was put back may have other messages below the offset.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from common.kafka.base import PartitionReader
from common.kafka.copy_mark import content_hash
from common.kafka.records import Partition
from common.kafka.repair_mark import REPAIR_NAME
from engine.client.single_reads import MessageAt
from engine.link.copy import SourceState
from kafka_bridge.copy_out.page import is_from
from kafka_bridge.copy_out.tails import FIRST_SPAN, GROWTH, read_between
from kafka_bridge.mapping import ID_HEADER, MappedRecord, record_of

PASSED_MAX = 1_000
"""Repairs, and copied records, in a row that are passed over."""
Name = tuple[bytes | None, bytes]
"""Id and hash of the content."""


class QueueBelow(NamedTuple):
    """
    Attributes:
        state: of the queue's source.
        topic_id: Kafka's.
        below: the engine's offset below which Kafka has all.
        first, place: offsets in Kafka between which it has them.
        end: of the partition: repairs are behind the place.
        source_end: records that were copied from below this offset are on both sides.
        is_open: whether a transaction is open there: what is behind its first record is not seen.
    """

    state: SourceState
    topic_id: UUID
    below: int
    first: int
    place: int
    end: int
    source_end: int
    is_open: bool = False


class Lacked(NamedTuple):
    """
    Attributes:
        first: the first message that is not on both sides, or an earlier one.
        is_engine: whether it is the engine that has not what was there.
    """

    first: int
    is_engine: bool


def open_partitions(ends: Mapping[Partition, int | None], stable: Mapping[Partition, int | None]) -> set[Partition]:
    """Partitions with an open transaction. Args: ends: asked for before the stable ones."""
    return {each for each, at in ends.items() if (at or 0) > (stable[each] or 0)}


class LackedMessages:
    """
    Args:
        reader: of committed records.
        message_at: the engine's message at an offset of the queue of this partition.
    """

    def __init__(self, reader: PartitionReader, message_at: Callable[[Partition, int], MessageAt]) -> None:
        self._reader, self._message_at = reader, message_at

    def of(self, asked: Mapping[Partition, QueueBelow]) -> dict[Partition, Lacked]:
        """The partitions whose newest message below is not on both sides.

        What retention may have deleted, or an open transaction hides, is not lacked.

        Raises KafkaFault. AdminError, OSError, LinkError: of the engine.
        """
        filled = {each: at for each, at in asked.items() if at.first < at.place and at.below}
        newest = {each: found for each, at in filled.items() if (found := self._newest(each, at)) is not None}
        names = self._names(
            {each: (max(filled[each].first, filled[each].place - FIRST_SPAN), filled[each].place) for each in newest}
        )
        lacked: dict[Partition, Lacked] = {}
        for each, (offset, message) in newest.items():
            at, copied_from = filled[each], _source(message, offset, filled[each])
            is_engine = message.record is None or copied_from is not None
            is_there = copied_from < at.source_end if copied_from is not None else _is_among(message, names[each])
            first = None if is_there or at.is_open else self._first(each, offset, message, at)
            lacked |= {} if first is None else {each: Lacked(first, is_engine)}
        return lacked

    def _newest(self, partition: Partition, at: QueueBelow) -> tuple[int, MessageAt] | None:
        """The newest message below that is no repair, and its offset; None: retention has deleted it."""
        for offset in range(at.below - 1, max(-1, at.below - 1 - PASSED_MAX), -1):
            found = self._message_at(partition, offset)
            if found.is_deleted:
                return None
            if found.record is None or REPAIR_NAME not in dict(_mapped(found).headers):
                return offset, found
        return None

    def _first(self, partition: Partition, newest: int, message: MessageAt, at: QueueBelow) -> int | None:
        """None: Kafka has the newest one, if only as a repair, or retention may have deleted it."""
        low, since, is_kept = self._lower(partition, newest, at)
        names, span, upper = set[Name](), FIRST_SPAN, at.end
        while upper > since:
            lower = max(since, at.end - span)
            names |= self._names({partition: (lower, upper)})[partition]
            if _is_among(message, names):
                return None
            upper, span = lower, span * GROWTH
        while low < newest:
            middle = (low + newest) // 2
            found = self._message_at(partition, middle)
            has_own = found.is_deleted or (_source(found, middle, at) is None and _is_among(found, names))
            is_kept = is_kept or has_own
            low, newest = (middle + 1, newest) if has_own else (low, middle)
        return self._after_copied(partition, low, at) if is_kept else None

    def _after_copied(self, partition: Partition, offset: int, at: QueueBelow) -> int:
        """The next message that was not copied from Kafka, if there is one soon."""
        for each in range(offset, min(offset + PASSED_MAX, at.below)):
            if _source(self._message_at(partition, each), each, at) is None:
                return each
        return offset

    def _lower(self, partition: Partition, newest: int, at: QueueBelow) -> tuple[int, int, bool]:
        """Offsets below which both sides have all: the engine's, and Kafka's; and whether Kafka keeps what is newer.

        A message is written to Kafka after the records that were copied before it was stored, so Kafka has deleted those
        first.
        """
        low, step = newest, 1
        while low > 0:
            own, low, step = low, max(0, newest - step), step * 2
            found = self._message_at(partition, low)
            if found.is_deleted:
                break
            source = _source(found, low, at)
            if source is not None and source < at.place:
                return low, max(at.first, source + 1), source >= at.first or self._is_kept(partition, low, own, at)
        return low, at.first, at.first == 0

    def _is_kept(self, partition: Partition, copied: int, own: int, at: QueueBelow) -> bool:
        """Whether Kafka still has the newest record that was copied between these messages of the engine."""
        source = 0
        while source < at.first and own - copied > 1:
            middle = (own + copied) // 2
            found = _source(self._message_at(partition, middle), middle, at)
            is_before = found is not None and found < at.place
            source, copied, own = (found or 0, middle, own) if is_before else (source, copied, middle)
        return source >= at.first

    def _names(self, ranges: Mapping[Partition, tuple[int, int]]) -> dict[Partition, set[Name]]:
        """Of the records between two offsets of each partition."""
        found: dict[Partition, set[Name]] = {each: set() for each in ranges}
        lower = {each: first for each, (first, end) in ranges.items() if first < end}
        for records in read_between(self._reader, lower, {each: ranges[each][1] for each in lower}) if lower else ():
            found[records.partition] |= {
                (dict(headers).get(ID_HEADER), content_hash(key, value))
                for headers, key, value in zip(records.headers, records.keys, records.values, strict=True)
            }
        return found


def _mapped(found: MessageAt) -> MappedRecord:
    assert found.record is not None
    return record_of(found.record.message, found.record.assigned_id or None, allows_reserved=True)


def _is_among(found: MessageAt, names: set[Name]) -> bool:
    if found.record is None:
        return False
    key, value, headers = _mapped(found)
    return (dict(headers).get(ID_HEADER), content_hash(key, value)) in names


def _source(found: MessageAt, offset: int, at: QueueBelow) -> int | None:
    """Where the message was copied from; None: it is the engine's own, or from another topic."""
    source = found.record.source_offset if found.record is not None else None
    return source if source is not None and is_from(at.state, offset, at.topic_id) else None
