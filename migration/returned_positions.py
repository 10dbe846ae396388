"""Positions of the engine's consumer groups as offsets of Kafka: the way back of `migration.group_positions`.

A group's position in Kafka is the lowest offset of what it has not settled in the engine: of records that were copied from
there, of the engine's own messages, which the copy back has marked, and of records that the engine does not have yet. So
nothing is skipped. What the group has settled behind its first open message is read again.
"""

from contextlib import closing
from typing import NamedTuple

from common.kafka.base import PartitionReader
from common.kafka.repair_mark import REPAIR_NAME, parse_repair_mark
from engine.link.record import StoredRecord, read_record
from kafka_bridge.copy_out.page import is_from
from kafka_bridge.mapping import fields_of
from migration.errors import PlanRefused
from migration.reconcile.engine_side import message_at, pieces, stored_at
from migration.reconcile.lookups import engine_id
from migration.reconcile.spans import ReadRange
from migration.topic_sides import PartitionSide, TopicSides

_BODY, _KEY = 2, 3


class EngineProgress(NamedTuple):
    """A group in one queue.

    Attributes:
        at: the lowest offset that it has not settled.
        settled: messages behind it that it has settled, out of their order.
    """

    queue: int
    at: int
    settled: int = 0


class ReturnedPosition(NamedTuple):
    """
    Attributes:
        engine: the lowest message that the group has not settled there.
        kafka: the offset from which on it goes on.
        end: of the partition.
        again: messages that it has settled and will read again.
        checked: "after": the record there was compared; "": the group has settled everything.
    """

    queue: int
    engine: int
    kafka: int
    end: int
    again: int
    checked: str


class _Unsettled(NamedTuple):
    """What a group has not settled in a queue, by where its records are in Kafka.

    Attributes:
        copied: the lowest Kafka offset among copied records, with the engine's offset; None: there is none.
        own: the first of the engine's own messages; None: there is none.
    """

    copied: tuple[int, int] | None
    own: int | None


class ReturnedPositions:
    """Translates progress of one topic's groups. Blocks; raises KafkaFault, AdminError, OSError, PayloadError.

    Args:
        is_returned: whether the home is Kafka: then it has every message of the engine's own.
    """

    def __init__(self, sides: TopicSides, *, is_returned: bool) -> None:
        self._sides, self._is_returned = sides, is_returned

    def translated(self, progress: list[EngineProgress]) -> list[ReturnedPosition]:
        """Raises PlanRefused: Kafka does not have all that the group has not settled, or a record differs."""
        with closing(self._sides.open_reader()) as reader:
            return [self._translated(reader, each) for each in progress]

    def _translated(self, reader: PartitionReader, progress: EngineProgress) -> ReturnedPosition:
        queue = progress.queue
        state = self._sides.source(queue)
        left = self._unsettled(progress)
        side = self._sides.partition(reader, queue)
        found = [] if left.copied is None else [left.copied]
        if left.own is not None:
            found.append(self._own_place(side, queue, left.own))
        at, offset = min(found, default=(side.stable, None))
        if at < side.earliest:
            raise PlanRefused(f"{self._sides.where(queue)}: {self._gone(offset or 0)}")
        if offset is not None:
            self._check(side, queue, at, offset)
        waiting = side.first_foreign(state.next, at)  # not copied yet
        if waiting is not None:
            at = waiting
        return ReturnedPosition(
            queue, progress.at, at, side.stable, progress.settled, "" if offset is None else "after"
        )

    def _unsettled(self, progress: EngineProgress) -> _Unsettled:
        queue, sides = progress.queue, self._sides
        report = sides.report(queue)
        copied: tuple[int, int] | None = None
        own: int | None = None
        for piece in pieces(sides.links[queue], sides.stored, {queue: ReadRange(progress.at, report.end)}):
            at = 0
            for number in range(piece.count):
                record, at = read_record(piece.records, at)
                offset = piece.first_offset + number
                place = self._place_in_kafka(record, queue, offset)
                if place is not None:
                    copied = min(copied or (place, offset), (place, offset))
                elif own is None:
                    own = offset
        return _Unsettled(copied, own)

    def _place_in_kafka(self, record: StoredRecord, queue: int, offset: int) -> int | None:
        """The Kafka offset that the engine's record itself names; None: the copy back has marked it in Kafka."""
        if record.source_offset is not None:
            is_kafkas = is_from(self._sides.rows[queue], offset, self._sides.kafka_topic.id)
            return record.source_offset if is_kafkas else None
        if REPAIR_NAME.encode() not in record.message:
            return None
        texts, properties = fields_of(record.message)
        mark = parse_repair_mark(properties.get(REPAIR_NAME.encode()))
        row = (self._sides.kafka_topic.id.bytes, engine_id(record), texts.get(_KEY), texts.get(_BODY, b""))
        return mark.offset if mark is not None and not mark.is_own and mark.names(*row) else None

    def _own_place(self, side: PartitionSide, queue: int, own: int) -> tuple[int, int]:
        """The lowest Kafka offset of the engine's own messages from an engine offset on, and the engine's offset of it."""
        sides = self._sides
        stored_ms = stored_at(sides.links[queue], sides.stored, queue, own)
        begin = sides.kafka.offsets([side.partition], stored_ms or 0)[side.partition]
        found = side.first_mark(begin, own) if begin is not None else None
        if found is None or found[1] != own:  # times of Kafka's own, or another order of them
            found = side.first_mark(side.earliest, own)
        if found is not None and found[1] == own:
            return found
        repaired = side.place_of(own)
        if repaired is None:
            raise PlanRefused(f"{sides.where(queue)}: {self._gone(own)}")
        return min(found or (repaired, own), (repaired, own))

    def _gone(self, offset: int) -> str:
        if self._is_returned:
            return (
                f"the message at engine offset {offset:,}, which the group has not settled, is not in Kafka any more, whose "
                "retention may have deleted it: have the group pull it here first, or move the group beyond it by "
                "`penstock group reset`"
            )
        return (
            f"the message at engine offset {offset:,}, which the group has not settled, is not in Kafka yet: wait for the copy "
            "back (BEHIND OUT of `penstock migrate status`)"
        )

    def _check(self, side: PartitionSide, queue: int, at: int, offset: int) -> None:
        """Raises PlanRefused: the record at a Kafka offset is another message than that at the engine's."""
        found = message_at(self._sides.links[queue], self._sides.stored, queue, offset)
        if found is not None and not side.has_at(at, found[0], offset):
            raise PlanRefused(
                f"{self._sides.where(queue)}: engine offset {offset:,} and Kafka offset {at:,}: id or content differ: compare "
                "with `penstock migrate verify` first"
            )
