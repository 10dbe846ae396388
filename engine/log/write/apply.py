"""Bytes of a master's log, applied to this one: the same bytes at the same positions. Design: docs/design/0030-replication.md.

What is derived from them (index, view, window of ids) is made as recovery makes it, by the same functions.
"""

import errno

from engine.env.base import Env
from engine.errors import DiskFullError, LogError
from engine.log.format import (
    BATCH_HEADER,
    ID_ENTRY,
    KIND_FIRED,
    KIND_PROGRESS,
    SEGMENT_HEADER_SIZE,
    parse_segment_header,
)
from engine.log.segment.native import BatchReader
from engine.log.segment.segments import LogSegments
from engine.log.types import LEASES_KEY, Topic
from engine.log.view import View
from engine.log.write.catalogue import TopicCatalogue
from engine.log.write.checkpoint import Checkpoints
from engine.log.write.durability import Durability
from engine.log.write.epoch_records import EpochRecords
from engine.log.write.native import Appender, LogTail
from engine.log.write.replay import replay
from engine.log.write.roller import SegmentRoller

LATE_S = 60
"""An id time that is so far behind the master's stamps is one of a start with an old log, or an empty one."""
NOT_NOTED = -1
"""The view's record of fired timers is not read yet."""


class ApplyError(LogError):
    """The bytes do not continue this log. What lies before `position` is applied.

    Attributes:
        position: the log's end.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"position={position}: {reason}")
        self.position = position


class LogApply:
    """The end of a log that follows another one. Nothing else may append meanwhile.

    Args:
        fired: as recovery found: (base of the segment, byte address, size) of batches of fired timers that may be in no
            mark. What is applied is added.

    Attributes:
        tail: takes most bytes, without an object per batch.
        has_applied: bytes with a control batch came since the start, or since `go_on()`.
        syncer: knows the synced position.
    """

    def __init__(
        self, env: Env, batches: BatchReader, appender: Appender, segments: LogSegments, roller: SegmentRoller, view: View,
        catalogue: TopicCatalogue, checkpoints: Checkpoints, durability: Durability, epochs: EpochRecords,
        fired: list[tuple[int, int, int]],
    ) -> None:  # fmt: skip
        self.fired = fired
        self.tail = LogTail(segments.active.header.log_id, appender)
        self._fired_from: int | None = NOT_NOTED
        self._leases_at_ms: int | None = None
        self.has_applied = False
        self._env, self._batches, self._appender = env, batches, appender
        self._segments, self._roller = segments, roller
        self._view, self._catalogue, self._checkpoints = view, catalogue, checkpoints
        self.syncer, self._epochs = durability.syncer, epochs

    @property
    def newest_ms(self) -> int:
        """The time that the last applied batch is stamped with; 0: there is none."""
        return self.tail.newest_ms

    @property
    def end_position(self) -> int:
        """End of the log."""
        return self._appender.end_position

    @property
    def durable_position(self) -> int:
        """Bytes below are synced."""
        return self.syncer.durable_position

    def since_leases_ms(self) -> int | None:
        """Milliseconds by the monotonic clock since the master's state of leases was applied; None: none was since `go_on()`."""
        return None if self._leases_at_ms is None else self._env.clock.monotonic_ms() - self._leases_at_ms

    def go_on(self, now_ms: int) -> None:
        """Continue after this log itself has appended, no batch with a later time than this; all that fired is marked."""
        self.fired.clear()
        self._fired_from, self._leases_at_ms, self.has_applied = NOT_NOTED, None, False
        self.tail.newest_ms = max(self.tail.newest_ms, now_ms)
        self.tail.is_ready = False

    def apply(self, position: int, data: bytes) -> None:
        """Write whole batches at the log's end. In the page cache on return, and readable.

        Args:
            data: within one segment.
        Raises:
            ApplyError: they are not whole batches of this log for this position; those before the first that is not
                are applied.
            DiskFullError: nothing was written.
        """
        if self.tail.take(position, data):
            return
        appender = self._appender
        if position != appender.end_position:
            raise ApplyError(appender.end_position, f"bytes for position {position}: only those at the end are taken")
        at = position - appender.segment_base
        if at + len(data) > self._segments.active.header.size:
            raise ApplyError(position, f"{len(data)} bytes reach over the end of the segment")
        # Verified before it is written, and indexed after it: a refused write leaves no entry.
        end, control, epoch, last_at, last_crc = self._batches.verify(
            appender.segment_base, data, at, at + len(data), at
        )
        whole = end - at
        if whole:
            self._take(at, data[:whole], control, epoch, last_at, last_crc)
        if whole < len(data):
            raise ApplyError(appender.end_position, f"{len(data) - whole} bytes are no whole batches of this log")

    def begin_segment(self, header: bytes) -> None:
        """Continue in the next segment, with the master's header. Blocks while the file is made.

        Raises:
            ApplyError: it is not the header of the next segment of this log.
            VersionError: it is of a version that this one does not know.
            DiskFullError: there is no room for it.
        """
        end, active = self._appender.end_position, self._segments.active
        parsed = parse_segment_header(header, self._segments.active.path)
        if parsed is None:
            raise ApplyError(end, "the header of the next segment does not verify")
        if (parsed.log_id, parsed.base) != (active.header.log_id, active.next_base):
            raise ApplyError(
                end, f"a header of log {parsed.log_id.hex()} at {parsed.base} does not follow this segment"
            )
        if parsed.size <= SEGMENT_HEADER_SIZE:
            raise ApplyError(end, f"a segment of {parsed.size} bytes has no room for a batch")
        self._note_fired()
        self._roller.roll_to(self._appender, parsed)

    def _take(self, at: int, data: bytes, control: list[int], epoch: int, last_at: int, last_crc: int) -> None:
        appender, active = self._appender, self._segments.active
        self._write(at, data)
        self._batches.enter(appender.index, data, at, at + len(data), at)
        appender.epoch = max(appender.epoch, epoch)
        newest_ms = BATCH_HEADER.unpack_from(data, last_at - at)[11]
        if entries := appender.ids.collect(data, 0, len(data)):
            now_ms = appender.id_time.now_ms()
            appender.ids.load(_sooner(entries, (newest_ms - now_ms) // 1000), now_ms)
            appender.index.checked += len(entries) // ID_ENTRY.size
        self.tail.newest_ms, self.has_applied = newest_ms, True
        end = active.base + at + len(data)
        appender.set_segment(active.file, appender.index, active.next_base, end, last_at, last_crc)
        try:
            for address in control:
                start = address - at
                self._replay(address, data[start : start + int.from_bytes(data[start + 4 : start + 8], "little")])
        except (OSError, LogError) as error:  # a checkpoint must not pass over the record: the next start replays it
            self._env.die(f"position={appender.end_position}: a control record cannot be applied to the view: {error}")
        self._note_fired()
        self._checkpoints.bound_pending()
        self.tail.is_ready = True  # what later batches of messages change is in the tail's hands

    def _note_fired(self) -> None:
        """Have the next checkpoint say from where on fired timers may lack a mark: a start scans no segment below it.

        A master notes the same when it fires.
        """
        lowest = min((base + at for base, at, _ in self.fired), default=None)
        if lowest != self._fired_from:
            self._fired_from = lowest
            self._view.put_fired_from(lowest)

    def _replay(self, at: int, batch: bytes) -> None:
        """Apply a control batch or a copied one, or note one of fired timers."""
        if batch[10] == KIND_FIRED:
            self.fired.append((self._segments.active.base, at, len(batch)))
        replay(batch, self._view, self._take_topic, self._take_counter, self._take_mark)
        if batch[10] == KIND_PROGRESS:
            self._epochs.changed()
            if LEASES_KEY in batch:
                self._leases_at_ms = self._env.clock.monotonic_ms()

    def _take_mark(self, covered_to: int, base: int, addresses: bytes) -> None:
        """The view has the mark; the table of timers is made when this node becomes master."""
        self.fired[:] = [fired for fired in self.fired if fired[0] + fired[1] >= covered_to]

    def _take_topic(self, topic: Topic) -> None:
        self._catalogue.apply(topic)
        self._appender.set_topic(topic.id, topic.queues)

    def _take_counter(self, topic_id: int, queue: int, next_offset: int) -> None:
        index = self._appender.index
        known = index.next_offset(topic_id, queue)
        if known is None:
            known = self._appender.next_offset(topic_id, queue)
        if known < next_offset:
            index.raise_next(topic_id, queue, next_offset)

    def _write(self, at: int, data: bytes) -> None:
        """Write all of it, or none and raise DiskFullError. Any other failure ends the process: the end is unknown."""
        file, start, left = self._segments.active.file, at, memoryview(data)
        while left.nbytes:
            try:
                taken = file.write_at(left, at)
            except OSError as error:
                if at == start and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise DiskFullError(f"{file.path}: {error.strerror}") from error
                self._env.die(f"{file.path}: write at {at} failed: {error}")
            left, at = left[taken:], at + taken


def _sooner(entries: bytes, late_s: int) -> bytes:
    """The entries of ids as they expire by an id time that is so far behind the master's clock."""
    if late_s <= LATE_S:
        return entries
    return b"".join(
        ID_ENTRY.pack(hashed, offset, queue, max(expires_s - late_s, 1))
        for hashed, offset, queue, expires_s in ID_ENTRY.iter_unpack(entries)
    )
