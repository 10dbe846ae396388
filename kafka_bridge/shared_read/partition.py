"""One partition that the group has given to this member: what was fetched, stored and may be committed.

Pure: no socket, clock or thread. Beside `copy_in.core.PartitionCopy`, which it uses, it keeps what was fetched until it
is known to be stored, since a member of a group cannot read it again.
"""

from bisect import bisect_left
from collections import deque
from typing import NamedTuple

from common.kafka.records import Partition, Records
from engine.link.copy import Copied, CopyPart, ForeignSource, SourceState
from kafka_bridge.copy_in.core import After, PartitionCopy
from kafka_bridge.copy_in.native import PackTarget
from kafka_bridge.shared_read.read_ahead import ReadAhead

REMEDY = "it stays in Kafka: give the group a position after it there, by Kafka's own tool, while it has no members"


class CopiedNote(NamedTuple):
    """The note of a committed position: the end of what the engine had copied of the partition then.

    Attributes:
        log_id, topic_id: of the engine.
        next: as `SourceState.next`.
    """

    log_id: str
    topic_id: int
    next: int

    def __str__(self) -> str:
        return f"penstock/{self.log_id}/{self.topic_id}/{self.next}"


def next_in(note: str, log_id: str, topic_id: int) -> int:
    """Up to where this topic of this engine had copied the partition by a note; 0: it does not say."""
    kind, _, rest = note.partition("/")
    place, _, at = rest.rpartition("/")
    return int(at) if kind == "penstock" and place == f"{log_id}/{topic_id}" and at.isdigit() else 0


class SharedPartition:
    """From its assignment until it is revoked or lost.

    Attributes:
        committed: the position that the group has from this member; None: none yet.
        log_id: of the engine that its copies are in; empty: it has not begun.
        repeated: records that the engine had already, from a member whose commit was lost.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition, self.ahead = partition, ReadAhead()
        self.committed: int | None = None
        self.repeated, self.log_id = 0, ""
        self._waiting: deque[Records] = deque()
        self._read_to: int | None = None
        self._copy: PartitionCopy | None = None
        self._part_bytes = self._stored = self._skipped = 0
        self._was_begun = False

    @property
    def is_idle(self) -> bool:
        """Whether everything that was fetched is stored."""
        return not self._waiting

    @property
    def is_begun(self) -> bool:
        """Whether the state of its queue is known."""
        return self._copy is not None

    @property
    def fault(self) -> str:
        """Why the next record cannot be stored; empty: it can."""
        return self._copy.fault if self._copy is not None else ""

    @property
    def stored(self) -> int:
        return self._stored + (self._copy.stored if self._copy is not None else 0)

    @property
    def skipped(self) -> int:
        return self._skipped + (self._copy.skipped if self._copy is not None else 0)

    @property
    def first_offset(self) -> int:
        """Of what waits; there has to be something."""
        return self._waiting[0].offsets[0]

    @property
    def position(self) -> int | None:
        """What may be committed: everything below is stored. None: nothing was fetched, or the engine was not asked."""
        if not self._waiting:
            return self._read_to
        return max(self._copy.next, self.first_offset) if self._copy is not None else None

    def take(self, records: Records) -> None:
        """Take a fetch that follows the one before."""
        self._read_to = records.next_offset
        if records.offsets:
            self._waiting.append(records)
            if self._copy is not None:
                self._give(self._copy, records)

    @property
    def note(self) -> str:
        """The note to commit with the position: the end of what the engine has copied of the partition."""
        return str(CopiedNote(self.log_id, self._copy.topic_id, self._copy.next)) if self._copy is not None else ""

    def begin(self, source: ForeignSource, state: SourceState, target: PackTarget) -> None:
        """The state of the queue is known: what it has is not copied again."""
        self.forget()
        self.log_id = target.log_id
        self._copy = PartitionCopy(self.partition, source, state, target, REMEDY)
        for each in self._waiting:
            self._give(self._copy, each)
        self._was_begun = True
        self._end_idle()

    def forget(self) -> None:
        """The outcome of the last part is not known: the queue's state has to be asked for."""
        self._stored, self._skipped, self._copy = self.stored, self.skipped, None
        self._part_bytes = 0

    def drop(self) -> int | None:
        """Forget what was fetched and is not known to be stored; returns from where on to read it again. None: there is nothing."""
        self.forget()
        if not self._waiting:
            return None
        at, self._read_to = self.first_offset, None
        self._waiting.clear()
        return at

    def part(self) -> CopyPart | None:
        """The next part to append, which must be settled before another one; None: there is none now."""
        if self._copy is None or not self.ahead.has_room:
            return None
        found = self._copy.part()
        self._part_bytes = len(found.batch) if found is not None else 0
        self._end_idle()
        return found

    def settle(self, answer: Copied) -> None:
        """Take the answer to the last part."""
        assert self._copy is not None
        before = self._copy.stored
        if self._copy.settle(answer) is After.ASK:
            self.forget()
            return
        self.ahead.add(self._copy.stored - before, self._part_bytes)
        self._part_bytes = 0
        self._end_idle()

    def _give(self, copy: PartitionCopy, records: Records) -> None:
        left = beginning_at(records, copy.next)
        self.repeated += 0 if self._was_begun else len(records.offsets) - len(left.offsets)
        copy.take(left)

    def _end_idle(self) -> None:
        if self._copy is not None and self._copy.is_idle and not self._part_bytes and not self._copy.fault:
            self._waiting.clear()


def beginning_at(records: Records, offset: int) -> Records:
    """The records from this offset on."""
    first = bisect_left(records.offsets, offset)
    if not first:
        return records
    return records._replace(
        offsets=records.offsets[first:], timestamps=records.timestamps[first:], keys=records.keys[first:],
        values=records.values[first:], headers=records.headers[first:],
    )  # fmt: skip
