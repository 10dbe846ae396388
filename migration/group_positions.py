"""Positions of Kafka's consumer groups as offsets of the engine, by the map that lies in the messages themselves.

A group's position in the engine is the first message there that is not among the records below its position in Kafka. It is
checked by the messages before and after it, which must have the same id and content on both sides. So nothing is skipped
and nothing is read again, as long as the engine has the records that the group has read.
"""

from contextlib import closing
from typing import NamedTuple

from common.kafka.base import PartitionReader
from engine.client.copied import CopiedPlace, engine_offset_of
from engine.link.copy import SourceState
from engine.link.record import read_record
from migration.errors import PlanRefused
from migration.reconcile.engine_side import message_at, pieces
from migration.reconcile.spans import ReadRange
from migration.topic_sides import PartitionSide, TopicSides


class TranslatedPosition(NamedTuple):
    """
    Attributes:
        kafka: the group's next offset there.
        engine: the offset in the queue from which on the group has not read it.
        end: of the queue.
        checked: which neighbours were compared: "before", "after", both, or "" where there is none.
        again: messages from there on that the group has read in Kafka.
    """

    queue: int
    kafka: int
    engine: int
    end: int
    checked: str
    again: int = 0


class GroupPositions:
    """Translates the positions of one topic's groups. Blocks; raises KafkaFault, AdminError, OSError, PayloadError.

    Args:
        is_cut: whether the topic was ever cut: then messages of the engine's own may be in Kafka.
    """

    def __init__(self, sides: TopicSides, *, is_cut: bool) -> None:
        self._sides, self._is_cut = sides, is_cut
        self._stored, self._links = sides.stored, sides.links

    def translated(self, committed: dict[int, int]) -> list[TranslatedPosition]:
        """The positions in the engine of next offsets by partition.

        Raises:
            PlanRefused: the engine does not have all that the group has read, or the neighbours differ.
        """
        with closing(self._sides.open_reader()) as reader:
            return [self._translated(reader, queue, at) for queue, at in sorted(committed.items())]

    def _translated(self, reader: PartitionReader, queue: int, committed: int) -> TranslatedPosition:
        state = self._sides.source(queue)
        side = self._sides.partition(reader, queue, committed)
        if committed > state.next and side.first_foreign(state.next, side.committed) is not None:
            raise PlanRefused(
                f"{self._sides.where(queue)}: the group has read up to offset {committed:,}, and {state.next:,} is copied: wait "
                "until the copy has caught up"
            )
        report = self._sides.report(queue)
        found = self._copied_at(queue, state, committed)
        start = end = found.offset if found is not None else max(state.end, report.first)
        mark = side.last_mark() if self._is_cut else None
        own_next = mark + 1 if mark is not None else 0
        span = ReadRange(max(min(start, own_next or start), report.first), min(max(end, own_next), report.end))
        at = self._first_unread(queue, span, committed, own_next)
        checked = [self._check(side, queue, at - 1, "before"), self._check(side, queue, at, "after")]
        return TranslatedPosition(queue, committed, at, report.end, " and ".join(filter(None, checked)))

    def _copied_at(self, queue: int, state: SourceState, committed: int) -> CopiedPlace | None:
        """The first copied record at or above a Kafka offset, of the present source under any of its numbers."""
        for number in _numbers(state, committed):
            found = engine_offset_of(self._links[queue], self._stored, queue, committed, number)
            if found is not None:
                return found
        return None

    def _first_unread(self, queue: int, span: ReadRange, committed: int, own_next: int) -> int:
        """The first offset whose message is not among the records below the group's position.

        Args:
            own_next: messages of the engine's own below it are in Kafka, below the position.
        """
        for piece in pieces(self._links[queue], self._stored, {queue: span}):
            at = 0
            for number in range(piece.count):
                record, at = read_record(piece.records, at)
                offset, source = piece.first_offset + number, record.source_offset
                if (source is None and offset >= own_next) or (source is not None and source >= committed):
                    return offset
        return max(span)

    def _check(self, side: PartitionSide, queue: int, offset: int, place: str) -> str:
        """Compare a copied message with its record. Returns `place`; empty: there is nothing to compare.

        Raises:
            PlanRefused: they differ, or the record lies on the other side of the group's position.
        """
        found = message_at(self._links[queue], self._stored, queue, offset) if offset >= 0 else None
        record = found[0] if found is not None else None
        if record is None or record.source_offset is None or record.source_offset < side.earliest:
            return ""
        where = f"{self._sides.where(queue)}: engine offset {offset:,} and Kafka offset {record.source_offset:,}"
        is_read = record.source_offset < side.committed
        if is_read is not (place == "before"):
            raise PlanRefused(f"{where}: the message {place} the group's position lies on its other side")
        if not side.has(record, offset):
            raise PlanRefused(f"{where}: id or content differ: compare with `penstock migrate verify` first")
        if place == "after" and side.first_foreign(side.committed, record.source_offset) is not None:
            raise PlanRefused(f"{where}: a record between the group's position and this one is not in the engine")
        return place


def _numbers(state: SourceState, offset: int) -> list[int]:
    """The numbers under which records of this offset or later ones of the present source were copied, in their order."""
    own = sorted(each for each in state.sources if each.source == state.source)
    before = [each.number for each in own if each.start <= offset]
    return [each.number for each in own if each.number >= (before[-1] if before else 0)]
