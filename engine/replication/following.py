"""Following: a slave takes the frames of its master, and tells what it has. Design: docs/design/0030-replication.md."""

from typing import Protocol

from engine.errors import LogError
from engine.link.errors import PayloadError
from engine.replication.frames import BytesFrame, SegmentFrame, StoredFrame

SYNC_MS = 200
"""Longest time for which a slave leaves bytes unsynced."""
JOIN_SYNC_MS = 10
"""The same while it joins: callers wait until its disk has what the log had then."""
SYNC_BYTES = 1 << 20
"""Unsynced bytes from which on a slave does not wait so long: one large write at the end keeps other writers waiting."""
REPORT_MS = 100
"""Longest time between two STORED: the master would take longer silence for a loss."""


class FollowingLog(Protocol):
    """The log of a slave."""

    @property
    def end_position(self) -> int: ...

    @property
    def durable_position(self) -> int: ...

    def apply(self, position: int, data: bytes) -> None:
        """See `engine.log.write.apply`."""

    def begin_segment(self, header: bytes) -> None:
        """See `engine.log.write.apply`."""


class StaleEpochError(LogError):
    """A frame of an epoch that is over: its sender is no master any more."""


class Following:
    """One slave that follows one master in one epoch; ends with the link or the epoch.

    Attributes:
        confirmed: bytes below are confirmed by the master, and in this log. Readers and the view's store go so far.
        is_over: set once this broker follows no more; frames are refused then.
    """

    def __init__(self, log: FollowingLog, epoch: int, now_ms: int) -> None:
        self._log, self._epoch = log, epoch
        self.confirmed = 0
        self.is_over = False
        self._heard_ms = self._reported_ms = now_ms
        self._unsynced_ms: int | None = None
        self._reported: StoredFrame | None = None

    def take_segment(self, frame: SegmentFrame, now_ms: int) -> None:
        """Continue in the next segment. Blocks while the file is made. Raises as take_bytes()."""
        self._check(frame.epoch)
        self._heard_ms = now_ms
        self._log.begin_segment(frame.header)

    def take_bytes(self, frame: BytesFrame, now_ms: int) -> None:
        """Write and apply the batches. In the page cache on return.

        Raises:
            StaleEpochError: the frame is of an epoch that is over.
            PayloadError: it is of an epoch that this slave does not know.
            ApplyError, DiskFullError: as `apply`; the slave has to leave.
        """
        self._check(frame.epoch)
        self._heard_ms = now_ms
        if frame.data:
            self._log.apply(frame.position, frame.data)
            self._unsynced_ms = now_ms if self._unsynced_ms is None else self._unsynced_ms
        self.confirmed = max(self.confirmed, min(frame.confirmed, self._log.end_position))

    def report(self, now_ms: int) -> StoredFrame | None:
        """The STORED to send at the end of a turn; None when there is nothing to tell."""
        stored = StoredFrame(self._epoch, self._log.end_position, self._log.durable_position)
        if stored.synced >= stored.end:
            self._unsynced_ms = None
        if stored == self._reported and now_ms - self._reported_ms < REPORT_MS:
            return None
        self._reported, self._reported_ms = stored, now_ms
        return stored

    def begins_sync(self, now_ms: int, joins: bool) -> bool:
        """Whether bytes have been unsynced for long enough; the caller begins a sync then.

        Bytes that come later wait for the next one: under load some are always unsynced.

        Args:
            joins: the record that this slave has adopted names it as joining.
        """
        if self._unsynced_ms is None:
            return False
        is_due = now_ms - self._unsynced_ms >= (JOIN_SYNC_MS if joins else SYNC_MS)
        if not is_due and self._log.end_position - self._log.durable_position < SYNC_BYTES:
            return False
        self._unsynced_ms = now_ms
        return True

    def silent_ms(self, now_ms: int) -> int:
        """Time since the last frame of the master."""
        return now_ms - self._heard_ms

    def _check(self, epoch: int) -> None:
        if self.is_over:
            raise StaleEpochError(f"a frame of epoch {epoch}: this broker does not follow any more")
        if epoch < self._epoch:
            raise StaleEpochError(f"a frame of epoch {epoch}: this broker follows in epoch {self._epoch}")
        if epoch > self._epoch:
            raise PayloadError(
                f"a frame of epoch {epoch}: this broker has not adopted it, and follows in {self._epoch}"
            )
