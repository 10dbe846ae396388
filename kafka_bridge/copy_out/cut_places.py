"""Whether the engine has, at the place of a cut, what was copied into it before: until something is copied back, no other
record tells it.

An engine that was put back to a copy of before the cut, and got other messages up to its place, has all ends that fit; and the
copy back would begin behind those messages.
"""

from collections.abc import Mapping
from typing import NamedTuple

from common.config.definitions import CutRecord
from common.kafka.base import KafkaTopic, PartitionReader
from common.kafka.copy_mark import COPY_HEADER, CopyMark, parse_copy_mark
from common.kafka.errors import KafkaFault
from common.kafka.records import Partition, Records
from common.kafka.repair_mark import REPAIR_NAME
from engine.link.copy import SourceState
from kafka_bridge.copy_out.page import EngineTopic
from kafka_bridge.copy_out.positions import SEARCH_POLLS_MAX, SEARCH_WAIT_S
from kafka_bridge.copy_out.tails import FIRST_SPAN, GROWTH, CopiedTails, TailRange, set_position
from kafka_bridge.source_identity import topic_id_in


class CutQueue(NamedTuple):
    """A queue at the place of its topic's cut.

    Attributes:
        place: the engine's topic.
        state: of the queue's source.
        first, end: offsets in Kafka between which what lies below the cut is now.
    """

    place: EngineTopic
    state: SourceState
    first: int
    end: int


class _Last(NamedTuple):
    """The last record below the cut. Attributes: offset: in Kafka; mark: of a message of an engine."""

    offset: int
    mark: CopyMark | None


def cut_places(
    topic: KafkaTopic, cut: CutRecord | None, places: Mapping[int, EngineTopic], states: Mapping[int, SourceState],
    positions: Mapping[int, int], starts: Mapping[Partition, int | None],
) -> dict[Partition, CutQueue]:  # fmt: skip
    """The queues whose cut no copied record and no operator's word has superseded.

    Args:
        positions: of the copy back: of a queue with one it compares what it has copied, or an operator has set it.
        starts: first offsets of the partitions.
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
        found[each] = CutQueue(place, state, starts.get(each) or 0, cut.kafka_end(queue))
    return found


class CutChecks:
    """
    Args:
        reader: of committed records.
        tails: compares what an engine has with its copies, by the same reader.
        group: whose positions are those of the copies.
    """

    def __init__(self, reader: PartitionReader, tails: CopiedTails, group: str) -> None:
        self._reader, self._tails, self._group = reader, tails, group

    def faults(self, asked: Mapping[Partition, CutQueue]) -> dict[Partition, str]:
        """By partition, why the engine is not the one that was cut; the others have what Kafka has there.

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
        return found | (self._tails.faults(marked) if marked else {})

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
        self._reader.assign(dict(lower))
        self._reader.resume([*lower])  # librdkafka keeps the pause of an earlier assignment
        before, silent = dict(lower), 0
        while behind := [each for each, at in self._reader.positions().items() if at < asked[each].end]:
            for records in self._reader.poll(SEARCH_WAIT_S):
                last = _last_in(records, asked[records.partition].end) if records.partition in asked else None
                if last is not None:
                    found[records.partition] = last
            now = dict(self._reader.positions())
            before, silent = now, silent + 1 if now == before else 0
            if silent > SEARCH_POLLS_MAX:
                raise KafkaFault(f"{behind[0].topic} {behind[0].number}: the place of the cut was not read")
        return found


def _last_in(records: Records, end: int) -> _Last | None:
    for index in range(len(records.offsets) - 1, -1, -1):
        named = dict(records.headers[index])
        if records.offsets[index] < end and REPAIR_NAME not in named:
            mark = parse_copy_mark(named.get(COPY_HEADER))
            is_whole = mark is not None and mark.matches(records.keys[index], records.values[index])
            return _Last(records.offsets[index], mark if is_whole else None)
    return None
