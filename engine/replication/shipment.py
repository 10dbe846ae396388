# cython: annotation_typing=False
"""Shipment: what a master has sent to one slave, and what the slave has told. Design: docs/design/0030-replication.md.

A slave answers at the end of each turn in which it took bytes, so silence and lack of progress are told apart: one that
is silent may be cut off, one that makes no progress has a slow or full disk.
"""

from typing import Protocol

from engine.link.errors import PayloadError
from engine.log.format import SEGMENT_HEADER_SIZE
from engine.replication.frames import BytesFrame, SegmentFrame

WINDOW_BYTES = 8 << 20
"""Maximum bytes on their way to one slave."""
FRAME_BYTES = 256 << 10
CATCH_UP_BYTES_PER_MS = 64 << 10
"""What a slave for which no caller waits gets per millisecond while there are appends, and twice what is appended: its
bytes take the callers' time. So a GiB takes 16 s. Without appends it gets what it takes."""
LIVE_MS = 50
"""Time after an append for which callers count as there."""
HEARTBEAT_MS = 100
SILENT_MS = 900
STALLED_MS = 500
LATE_MS = 1000
"""A member of the set that is behind by more makes callers wait, although it makes progress."""


class ShippedLog(Protocol):
    """The log of a master."""

    @property
    def end_position(self) -> int: ...

    def read(self, position: int, bytes_max: int) -> bytes:
        """See `engine.log.read.raw_batches`."""

    def next_segment(self, position: int) -> tuple[int, bytes]:
        """See `engine.log.read.raw_batches`."""


class Shipment:
    """One slave that follows.

    Args:
        incarnation: of its process.
        epoch: of the record under which it follows.
        position: the common position: its log ends there.

    Attributes:
        sent: position up to which bytes were sent.
        stored, synced: what the slave has told: bytes below are written there, and on its disk.
    """

    def __init__(self, log: ShippedLog, incarnation: int, epoch: int, position: int, now_ms: int) -> None:
        self._log, self.incarnation, self.epoch = log, incarnation, epoch
        self.sent = self.stored = position
        self.synced = 0
        self._sent_ms = self._told_ms = self._moved_ms = now_ms
        self._seen_end, self._live_ms = log.end_position, now_ms - LIVE_MS
        self._credit, self._credit_ms = FRAME_BYTES, now_ms
        self._due, self._due_ms = position, now_ms

    @property
    def room(self) -> int:
        """Bytes that may be sent now."""
        return max(0, WINDOW_BYTES - (self.sent - self.stored))

    def next_frame(self, confirmed: int, now_ms: int, is_awaited: bool) -> SegmentFrame | BytesFrame | None:
        """The next frame to send, which counts as sent then; None: nothing is to be sent now.

        Args:
            is_awaited: the slave is in sync or joins, so callers wait for it, and it gets all that its window takes.

        Raises:
            PositionGoneError, CorruptionError, OSError: the log cannot give the bytes; the slave has to get them otherwise.
        """
        position, room = self.sent, self.room
        if position == self._log.end_position or not room:
            if now_ms < self.heartbeat_at_ms:
                return None
            self._sent_ms = now_ms
            return BytesFrame(self.epoch, position, confirmed)
        size = min(room, FRAME_BYTES, self._log.end_position - position)
        if not is_awaited and not self._may_take(size, now_ms):
            return None
        data = self._log.read(position, size)
        if data:
            self._credit -= len(data)
            self._take(position + len(data), now_ms)
            return BytesFrame(self.epoch, position, confirmed, data)
        base, header = self._log.next_segment(position)
        self._take(base + SEGMENT_HEADER_SIZE, now_ms)
        return SegmentFrame(self.epoch, header)

    def _may_take(self, size: int, now_ms: int) -> bool:
        """Whether a slave for which no caller waits may have so much now."""
        appended = self._log.end_position - self._seen_end
        if appended:
            self._seen_end, self._live_ms = self._log.end_position, now_ms
        if now_ms - self._live_ms >= LIVE_MS:
            self._credit = FRAME_BYTES
        else:
            earned = CATCH_UP_BYTES_PER_MS * (now_ms - self._credit_ms)
            self._credit = min(2 * FRAME_BYTES, self._credit + earned) + 2 * appended
        self._credit_ms = now_ms
        return self._credit >= size

    def is_idle(self, end: int, now_ms: int) -> bool:
        """Whether nothing is to be sent now to the slave of a log that ends here."""
        return self.sent == end and now_ms < self._sent_ms + HEARTBEAT_MS

    def took(self, position: int, now_ms: int) -> None:
        """Note that the bytes up to the position were sent: within `room`, and by others than `next_frame`."""
        self._take(position, now_ms)

    def _take(self, position: int, now_ms: int) -> None:
        if self.sent == self.stored:
            self._moved_ms = now_ms  # nothing waited before
        self.sent, self._sent_ms = position, now_ms

    def told(self, epoch: int, end: int, synced: int, now_ms: int) -> None:
        """Note a STORED. Raises PayloadError: it is of another epoch, falls, or is above what was sent."""
        if epoch != self.epoch:
            raise PayloadError(f"STORED: of epoch {epoch}, and the slave follows in epoch {self.epoch}")
        if end > self.sent:
            raise PayloadError(f"STORED: up to {end}, and {self.sent} was sent")
        if end < self.stored or synced < self.synced:
            raise PayloadError(f"STORED: {end} and {synced} synced, after {self.stored} and {self.synced}")
        if end > self.stored:
            self._moved_ms = now_ms
        self._told_ms = now_ms
        self.stored, self.synced = end, synced

    @property
    def heartbeat_at_ms(self) -> int:
        """Time of the next heartbeat, unless something is sent before."""
        return self._sent_ms + HEARTBEAT_MS

    def is_silent(self, now_ms: int) -> bool:
        """Whether nothing has come from the slave for too long."""
        return now_ms - self._told_ms >= SILENT_MS

    def is_stalled(self, now_ms: int) -> bool:
        """Whether sent bytes wait for the slave, and it has taken none for too long."""
        return self.stored < self.sent and now_ms - self._moved_ms >= STALLED_MS

    def is_late(self, now_ms: int) -> bool:
        """Whether the slave lacks a part of what the log had LATE_MS ago. Notes the log's end: ask again and again."""
        if self.stored >= self._due:
            self._due, self._due_ms = self._log.end_position, now_ms
        return self.stored < self._due and now_ms - self._due_ms >= LATE_MS
