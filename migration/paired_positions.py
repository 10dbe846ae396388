"""Positions of groups between two sides that proxies write to: what a group has not read on one side, found on the other.

No record names its place on the other side, so messages are compared by id, key and body. Where several proxies wrote, the
sides differ in their order: the position is that of the lowest message that the group has not read, and what lies behind it
is read again, though the group has read it on its side. Messages on their way to a side are looked for, and waited for.
"""

import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

from common.kafka.base import PartitionReader
from common.kafka.records import Partition
from engine.link.record import read_record
from migration.errors import PlanRefused
from migration.group_positions import TranslatedPosition
from migration.reconcile.engine_side import pieces, queue_reports, stored_at
from migration.reconcile.kafka_side import fetches, first_time
from migration.reconcile.native import rows_of_records, rows_of_stored
from migration.reconcile.rows import ROW_SIZE
from migration.reconcile.spans import ReadRange
from migration.returned_positions import EngineProgress, ReturnedPosition
from migration.topic_sides import COMPARED, TopicSides

UNREAD_MAX = 2_000_000
"""More messages that a group has not read are not held in memory: some 150 bytes each."""
CHUNK, CHUNK_MAX = 2_000, 64_000
RECENT_MS = 10_000
"""A younger message may be on its way to the other side: an older one that is not there waits in a journal, which tells it."""
ARRIVES_S = 10.0
LOOK_S = 0.1
BY_ID = "by id"
"""How a position was checked: both sides have each message that the group has not read."""


class PairedMessage(NamedTuple):
    """Attributes: name: hashes of id, key and body; source: Kafka's offset of a copied record; None: it was not copied."""

    name: bytes
    offset: int
    source: int | None = None


class PairedSide(ABC):
    """One queue or partition. Its messages are named by a hash with a key of this translation."""

    @abstractmethod
    def bounds(self) -> tuple[int, int]:
        """First offset and end."""

    @abstractmethod
    def messages(self, first: int, end: int) -> Iterator[PairedMessage]:
        """In their order."""

    @abstractmethod
    def recent(self, end: int) -> int:
        """The first offset of what was stored within RECENT_MS before the message that ends there."""


class EngineQueue(PairedSide):
    def __init__(self, sides: TopicSides, queue: int, key: tuple[int, int]) -> None:
        self._link, self._stored, self._queue = sides.links[queue], sides.stored, queue
        self._scope, self._key = sides.scopes[queue], key

    def bounds(self) -> tuple[int, int]:
        report = queue_reports(self._link, self._stored, [self._queue])[self._queue]
        return report.first, report.end

    def messages(self, first: int, end: int) -> Iterator[PairedMessage]:
        for piece in pieces(self._link, self._stored, {self._queue: ReadRange(first, end)}):
            rows = rows_of_stored(
                piece.records, piece.count, piece.first_offset, piece.stored_at_ms, self._scope, self._key
            )
            at = 0
            for number in range(piece.count):
                record, at = read_record(piece.records, at)
                offset = piece.first_offset + number
                if first <= offset < end:
                    begin = number * ROW_SIZE
                    yield PairedMessage(rows[begin : begin + COMPARED], offset, record.source_offset)

    def recent(self, end: int) -> int:
        newest_ms = stored_at(self._link, self._stored, self._queue, end - 1) if end else None
        if newest_ms is None:
            return end
        at_ms = newest_ms - RECENT_MS
        return min(end, queue_reports(self._link, self._stored, [self._queue], at_ms)[self._queue].next)


class KafkaPartition(PairedSide):
    def __init__(self, sides: TopicSides, queue: int, reader: PartitionReader, key: tuple[int, int]) -> None:
        self._sides, self._queue, self._reader, self._key = sides, queue, reader, key
        self._partition, self._scope = Partition(sides.topic.name, queue), sides.scopes[queue]

    def bounds(self) -> tuple[int, int]:
        side = self._sides.partition(self._reader, self._queue)
        return side.earliest, side.stable

    def messages(self, first: int, end: int) -> Iterator[PairedMessage]:
        for records in fetches(self._reader, {self._partition: ReadRange(first, end)}):
            rows = rows_of_records(records, self._scope, self._key)
            for begin, offset in zip(range(0, len(rows), ROW_SIZE), records.offsets, strict=True):
                if first <= offset < end:
                    yield PairedMessage(rows[begin : begin + COMPARED], offset)

    def recent(self, end: int) -> int:
        newest_ms = first_time(self._reader, self._partition, end - 1, end) if end else None
        if newest_ms is None:
            return end
        found = self._sides.kafka.offsets([self._partition], max(0, newest_ms - RECENT_MS))[self._partition]
        return min(end, end if found is None else found)


class PairedOffset(NamedTuple):
    """Attributes: again: messages from there on that the group has read on its own side."""

    offset: int
    end: int
    again: int


def paired_offset(
    source: PairedSide, at: int, target: PairedSide, where: str,
    pause: Callable[[float], object] = time.sleep, waits_s: float = ARRIVES_S,
) -> PairedOffset:  # fmt: skip
    """The first offset of the target from which on the group has not read everything, by its position in the source.

    Raises:
        PlanRefused: a message that it has not read is not in the target, or it has too many of them.
    """
    first, end = target.bounds()  # before the source's: what comes later lies behind it
    source_first, source_end = source.bounds()
    at = max(at, source_first)
    if source_end - at > UNREAD_MAX:
        raise PlanRefused(
            f"{where}: the group has {source_end - at:,} messages to read, at most {UNREAD_MAX:,} can be looked for: have it "
            "read on first"
        )
    unread = Counter(each.name for each in source.messages(at, source_end))
    count, young = unread.total(), target.recent(end)
    lowest, known = _lowest(target, first, end, at, unread, young)
    matched = count - unread.total()
    others = [each for each in target.messages(young, end) if each.offset not in known]
    coming = _coming(source, source_first, at, others) if others else []
    lowest = min([lowest, *coming])
    _await(target, end, unread, where, pause, waits_s)
    return PairedOffset(lowest, end, end - lowest - matched - len(coming))


def _lowest(
    target: PairedSide, first: int, end: int, at: int, unread: Counter[bytes], young: int
) -> tuple[int, set[int]]:
    """The lowest offset of these messages, the latest of each first; takes them out of `unread`.

    And the offsets of those that are not older than `young`.
    """
    lowest, upper, span, known = end, end, CHUNK, set[int]()
    while unread.total() and upper > first:
        lower = max(first, upper - span)
        for each in reversed([*target.messages(lower, upper)]):
            if unread[each.name] > 0:
                unread[each.name] -= 1
                lowest = each.offset
                if lowest >= young:
                    known.add(lowest)
            elif each.source is not None and each.source < at:
                return lowest, known  # what lies before was copied before
        upper, span = lower, min(2 * span, CHUNK_MAX)
    return lowest, known


def _coming(source: PairedSide, source_first: int, at: int, others: list[PairedMessage]) -> list[int]:
    """Offsets of recent messages of the target that the source does not have yet: they are not among what was read."""
    begin = max(source_first, at - 2 * len(others) - CHUNK_MAX)
    read = {each.name for each in source.messages(begin, at)}
    return [each.offset for each in others if each.name not in read]


def _await(
    target: PairedSide, end: int, unread: Counter[bytes], where: str, pause: Callable[[float], object], waits_s: float
) -> None:
    """Wait until the target has these messages, too. Raises PlanRefused: it does not get them."""
    deadline = time.monotonic() + waits_s
    while unread.total():
        for each in target.messages(end, upper := target.bounds()[1]):
            unread[each.name] -= unread[each.name] > 0
        end = upper
        if unread.total() and time.monotonic() > deadline:
            raise PlanRefused(
                f"{where}: {unread.total():,} messages that the group has not read are on one side only, or retention has "
                "deleted them on the other: wait for the repair journals, compare with `penstock migrate verify --all "
                "--repair`, or have the group read them first"
            )
        if unread.total():
            pause(LOOK_S)


class PairedPositions:
    """Translates positions of one topic's groups, in both directions. Blocks; raises as `GroupPositions`."""

    def __init__(self, sides: TopicSides) -> None:
        self._sides = sides
        numbers = os.urandom(16)
        self._key = int.from_bytes(numbers[:8], "big"), int.from_bytes(numbers[8:], "big")

    def translated(self, committed: dict[int, int]) -> list[TranslatedPosition]:
        """The positions in the engine of next offsets by partition. Raises PlanRefused."""
        found = []
        with closing(self._sides.open_reader()) as reader:
            for queue, at in sorted(committed.items()):
                kafka, engine = self._both(reader, queue)
                place = paired_offset(kafka, at, engine, self._sides.where(queue))
                found.append(TranslatedPosition(queue, at, place.offset, place.end, BY_ID, place.again))
        return found

    def returned(self, progress: list[EngineProgress]) -> list[ReturnedPosition]:
        """The positions in Kafka of progress in the engine. Raises PlanRefused."""
        found = []
        with closing(self._sides.open_reader()) as reader:
            for each in progress:
                kafka, engine = self._both(reader, each.queue)
                place = paired_offset(engine, each.at, kafka, self._sides.where(each.queue))
                again = place.again + each.settled
                found.append(ReturnedPosition(each.queue, each.at, place.offset, place.end, again, BY_ID))
        return found

    def _both(self, reader: PartitionReader, queue: int) -> tuple[KafkaPartition, EngineQueue]:
        if queue not in self._sides.scopes:
            raise PlanRefused(
                f"{self._sides.where(queue)}: the engine does not have it yet: is a Kafka bridge running?"
            )
        return KafkaPartition(self._sides, queue, reader, self._key), EngineQueue(self._sides, queue, self._key)
