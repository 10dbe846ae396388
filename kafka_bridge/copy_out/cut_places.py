"""Whether the engine has, at the place of a cut, what was copied into it before: until something is copied back, no other
record tells it.

An engine that was put back to a copy of before the cut, and got other messages up to its place, has all ends that fit; and the
copy back would begin behind those messages.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from common.config.definitions import CutRecord
from common.kafka.base import KafkaTopic, PartitionReader
from common.kafka.copy_mark import COPY_HEADER, CopyMark, parse_copy_mark
from common.kafka.records import Partition, Records
from common.kafka.repair_mark import REPAIR_NAME
from engine.client.single_reads import MessageAt
from engine.link.copy import SourceState
from kafka_bridge.copy_out.lacked import Lacked, LackedMessages, QueueBelow
from kafka_bridge.copy_out.page import EngineTopic
from kafka_bridge.copy_out.tails import FIRST_SPAN, GROWTH, CopiedTails, TailRange, read_between, set_position
from kafka_bridge.source_identity import topic_id_in


class CutQueue(NamedTuple):
    """A queue at the place of its topic's cut.

    Attributes:
        place: the engine's topic.
        state: of the queue's source.
        first, end: offsets in Kafka between which what lies below the cut is now.
        below: what the engine has below it.
    """

    place: EngineTopic
    state: SourceState
    first: int
    end: int
    below: QueueBelow


class _Last(NamedTuple):
    """The last record below the cut. Attributes: offset: in Kafka; mark: of a message of an engine."""

    offset: int
    mark: CopyMark | None


def cut_places(
    topic: KafkaTopic, cut: CutRecord | None, places: Mapping[int, EngineTopic], states: Mapping[int, SourceState],
    positions: Mapping[int, int], starts: Mapping[Partition, int | None], ends: Mapping[Partition, int | None],
) -> dict[Partition, CutQueue]:  # fmt: skip
    """The queues whose cut no copied record and no operator's word has superseded.

    Args:
        positions: of the copy back: of a queue with one it compares what it has copied, or an operator has set it.
        starts, ends: of the partitions.
    """
    found: dict[Partition, CutQueue] = {}
    if cut is None or cut.kafka_topic_id != str(topic.id):
        return found
    for queue, place in places.items():
        each, state = Partition(topic.name, queue), states.get(queue)
        if queue in positions or queue >= topic.partitions or state is None or not state.sources:
            continue
        last = max(state.sources, key=lambda source: source.number)
        is_accepted_since = last.first >= cut.engine_first(queue)
        if is_accepted_since or topic_id_in(last.source.identity) != topic.id:
            continue
        first, at, end = starts.get(each) or 0, cut.kafka_end(queue), ends.get(each) or 0
        below = QueueBelow(state, topic.id, cut.engine_first(queue), first, min(at, end), end, end)
        found[each] = CutQueue(place, state, first, at, below)
    return found


def rolled_back_places(
    found: Mapping[Partition, CutQueue], open_ones: Collection[Partition]
) -> dict[Partition, QueueBelow]:  # fmt: skip
    """Of a topic whose home is Kafka again: records that came later were copied from behind the place."""
    return {each: at.below._replace(source_end=at.end, is_open=each in open_ones) for each, at in found.items()}


def copied_below(
    topic: KafkaTopic, states: Mapping[int, SourceState], positions: Mapping[int, int],
    starts: Mapping[Partition, int | None], ends: Mapping[Partition, int | None], asked: Collection[Partition],
) -> dict[Partition, QueueBelow]:  # fmt: skip
    """The messages below the copy back's positions in these partitions, by partition."""
    bounds = {each: (starts.get(each) or 0, ends.get(each) or 0) for each in asked if each.number in states}
    return {
        each: QueueBelow(states[each.number], topic.id, positions[each.number], first, end, end, end)
        for each, (first, end) in bounds.items()
    }


class CutChecks:
    """
    Args:
        reader: of committed records.
        message_at: the engine's message at an offset of the queue of this partition.
        group: whose positions are those of the copies.
    Attributes:
        tails: compares what an engine has with its copies.
    """

    def __init__(self, reader: PartitionReader, message_at: Callable[[Partition, int], MessageAt], group: str) -> None:
        self._reader, self._group = reader, group
        self.tails, self._messages = CopiedTails(reader, message_at, group), LackedMessages(reader, message_at)

    def faults(
        self, asked: Mapping[Partition, CutQueue], copied: Mapping[Partition, QueueBelow], open_ones: Collection[Partition]
    ) -> dict[Partition, str]:  # fmt: skip
        """By partition, why a side is not the one that was cut, or that was copied; the others have what the other has there.

        Args:
            copied: of queues with a position.
            open_ones: partitions with an open transaction.
        Raises KafkaFault. AdminError, OSError, LinkError: of the engine.
        """
        found: dict[Partition, str] = {}
        marked: dict[Partition, TailRange] = {}
        for each, last in self._last(asked).items():
            at = asked[each]
            if last.mark is not None and (last.mark.log_id, last.mark.topic_id) == at.place:
                marked[each] = TailRange(at.place, at.first, at.end)  # of a soak before this one
            elif last.offset >= at.state.next:
                found[each] = self._sentence(each, at.state)
        places = {each: at.below for each, at in asked.items()} | dict(copied)
        lacked = self._messages.of({each: at._replace(is_open=each in open_ones) for each, at in places.items()})
        told = {each: self._lacked(each, at) for each, at in lacked.items()}
        return told | found | (self.tails.faults(marked) if marked else {})

    def _lacked(self, partition: Partition, at: Lacked) -> str:
        return (
            f"topic {partition.topic} queue {partition.number}: from offset {at.first:,} on Kafka has not the engine's messages: "
            "one of both was put back to an older copy, or has lost its newest, and has got others in their place: "
            f"{set_position(self._group, partition, at.first)}"
        )

    def _sentence(self, partition: Partition, state: SourceState) -> str:
        return (
            f"topic {partition.topic} queue {partition.number}: from offset {state.end:,} on the engine has not the records that "
            f"were copied from Kafka before the cut, from {state.next:,} on there: it was put back to an older copy, or has lost "
            f"them, and its new messages have their offsets: {set_position(self._group, partition, state.end)}"
        )

    def _last(self, asked: Mapping[Partition, CutQueue]) -> dict[Partition, _Last]:
        """The last record below the cut, of partitions that have one; repairs are written out of their order."""
        found: dict[Partition, _Last] = {}
        left, span = {each: at for each, at in asked.items() if at.first < at.end}, FIRST_SPAN
        while left:
            lower = {each: max(at.first, at.end - span) for each, at in left.items()}
            found |= self._read(lower, left)
            left = {each: at for each, at in left.items() if each not in found and lower[each] > at.first}
            span *= GROWTH
        return found

    def _read(self, lower: Mapping[Partition, int], asked: Mapping[Partition, CutQueue]) -> dict[Partition, _Last]:
        found: dict[Partition, _Last] = {}
        for records in read_between(self._reader, lower, {each: asked[each].end for each in lower}):
            last = _last_in(records, asked[records.partition].end)
            if last is not None:
                found[records.partition] = last
        return found


def _last_in(records: Records, end: int) -> _Last | None:
    for index in range(len(records.offsets) - 1, -1, -1):
        named = dict(records.headers[index])
        if records.offsets[index] < end and REPAIR_NAME not in named:
            mark = parse_copy_mark(named.get(COPY_HEADER))
            is_whole = mark is not None and mark.matches(records.keys[index], records.values[index])
            return _Last(records.offsets[index], mark if is_whole else None)
    return None
