"""Decisions of a copy from Kafka: where a partition's copy begins or why it stops, and what to append next.

Pure: no socket, clock or thread. The engine decides what is stored; see docs/design/0036-copied-batches.md.
"""

from collections import deque
from enum import Enum
from typing import NamedTuple

from common.kafka.records import Partition, Records
from common.quoting import quoted
from engine.link.batch import encode_packed_batch
from engine.link.codes import OK
from engine.link.copy import Copied, CopyPart, ForeignSource, SourceState
from kafka_bridge.copy_in.last_copied import LastCopied
from kafka_bridge.copy_in.native import PackTarget, pack

BATCH_BYTES_MAX = 1 << 20
"""Records of one batch; the last one may pass it."""
LEFT_OUT = "leave it out by `penstock kafka accept {topic} --partition {number} --skip {offset} --reason TEXT`"


def unstorable(partition: Partition, offset: int, fault: str, topic: str, remedy: str = LEFT_OUT) -> str:
    """The sentence about a record that the engine cannot store. Args: topic: of the engine."""
    where = f"kafka topic {quoted(partition.topic)} partition {partition.number} offset {offset:,}"
    return f"{where}: {fault}: {remedy.format(topic=topic, number=partition.number, offset=offset)}"


class Begin(NamedTuple):
    """The queue has no source: accept it with this first offset."""

    start: int


class Continue(NamedTuple):
    """Copy from this offset on."""

    next: int


class Halt(NamedTuple):
    """Nothing may be copied before an operator says so."""

    sentence: str


class PartitionBounds(NamedTuple):
    """Of a partition: its first offset, and the one after its last record."""

    start: int
    end: int


def first_step(
    topic: str, partition: Partition, state: SourceState, source: ForeignSource, bounds: PartitionBounds, begin: int
) -> Begin | Continue | Halt:
    """The step by which the copy of a partition begins or goes on, from what the engine and Kafka have.

    Args:
        topic: of the engine.
        source: the partition as it is in Kafka now.
        begin: the first offset to copy where the queue has no source.
    """
    if not state.number:
        return Begin(max(begin, bounds.start))
    where = f"kafka topic {quoted(partition.topic)} partition {partition.number}"
    accept = f"`penstock kafka accept {topic} --partition {partition.number}"
    if state.source != source:
        return Halt(
            f"{where}: the topic was deleted and made again, or belongs to another cluster: copy the new one by "
            f"{accept} --reason TEXT`"
        )
    if bounds.end < state.next:
        return Halt(
            f"{where}: it ends at {bounds.end:,}, but was copied up to {state.next:,}: Kafka has lost records, and others "
            f"may have their offsets: copy from there by {accept} --start {bounds.end} --reason TEXT`"
        )
    if bounds.start > state.next:
        return Halt(
            f"{where}: it begins at {bounds.start:,}, but was copied up to {state.next:,} only: up to "
            f"{bounds.start - state.next:,} records are lost: go on by {accept} --reason TEXT`"
        )
    return Continue(state.next)


class After(Enum):
    """What the answer to a part asks for.

    GO_ON: send the next part. ASK: ask for the queue's state, and read from its next offset again.
    """

    GO_ON = 0
    ASK = 1


class PartitionCopy:
    """The copy of one partition into the queue of its number, from one question for the queue's state to the next.

    Args:
        state: of the queue, whose source is `source`.
        remedy: what to do about a record that cannot be copied, with {topic}, {number} of the partition and {offset}.
        last: reading begins at this record, which has to be what Kafka has there; None: it begins at the next offset.
    Attributes:
        position: where reading continues; records that are not copied move it, too.
        stored, skipped: records since the beginning.
        fault: why nothing more can be copied, for example the record at the front; empty: it can.
    """

    def __init__(
        self, partition: Partition, source: ForeignSource, state: SourceState, target: PackTarget, remedy: str = "",
        last: LastCopied | None = None,
    ) -> None:  # fmt: skip
        self.partition, self._source, self._target = partition, source, target
        self.topic_id, self.number, self.next = state.topic_id, state.number, state.next
        self.position = state.next if last is None else last.offset
        self._last = last
        self.stored = self.skipped = 0
        self.fault = ""
        self._remedy = remedy or LEFT_OUT
        self._fetched: deque[Records] = deque()
        self._first = 0
        self._in_flight = 0

    @property
    def is_idle(self) -> bool:
        """Whether everything that was fetched is stored."""
        return not self._fetched

    @property
    def has_passed(self) -> bool:
        """Whether everything between the queue's next offset and `position` was read, and had nothing to copy."""
        return self.is_idle and not self.fault and self.position > self.next

    def pass_over(self, state: SourceState) -> None:
        """Take the queue's state after its position was moved to the end of what this copy has passed."""
        self.number, self.next = state.number, state.next

    def take(self, records: Records) -> None:
        """Take a fetch that follows the one before."""
        first = self._passed_last(records) if self._last is not None else 0
        self.position = records.next_offset
        if len(records.offsets) > first and not self.fault:
            self._first = first or self._first
            self._fetched.append(records)

    def _passed_last(self, records: Records) -> int:
        """The index behind the record that was copied last, which begins the first fetch; a fault: it does not."""
        assert self._last is not None
        if not records.offsets and records.next_offset <= self._last.offset:
            return 0
        if records.offsets and self._last.is_at(records, 0, self._target.kafka_topic_id):
            self._last = None
            return 1
        self.fault = self._last.loss(self._target.topic.decode(), self.partition)
        return 0

    def part(self) -> CopyPart | None:
        """The next part to append, which must be settled before another one; None: there is none."""
        while self._fetched and not self.fault:
            records = self._fetched[0]
            packed = pack(records, self._first, self._target, BATCH_BYTES_MAX)
            self._first = packed.following
            self.skipped += packed.skipped
            if packed.fault and not packed.copied:
                offset = records.offsets[packed.following]
                self.fault = unstorable(self.partition, offset, packed.fault, self._target.topic.decode(), self._remedy)
                return None
            if packed.following == len(records.offsets):
                self._fetched.popleft()
                self._first = 0
            if packed.copied:
                self._in_flight = packed.copied
                queue = self.partition.number
                batch = encode_packed_batch(self.topic_id, queue, self.number, packed.data, packed.copied)
                return CopyPart(self._source, self.next, batch)
        return None

    def settle(self, answer: Copied) -> After:
        """Take the answer to the last part. A refused part is not sent again: the engine says what it expects."""
        if answer.code == OK:
            self.next = answer.next
            self.stored += self._in_flight
            return After.GO_ON
        return After.ASK
