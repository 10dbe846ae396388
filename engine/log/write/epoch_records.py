"""Epochs of this log as its records name them, and the beginning of a new one by this broker.

Key of progress: b"\0epoch" ‖ u32 epoch, big-endian → u64 start ‖ u64 incarnation of the master (little-endian) ‖ its name.
So a start replays them, a slave applies them, and retention relocates them. Design: docs/design/0030-replication.md.
"""

import struct

from engine.errors import EpochOrderError
from engine.log.epochs import EpochHistory, EpochStart
from engine.log.write.native import Appender
from engine.log.write.progress import ProgressRecords
from engine.log.write.refusal import Refusal

KEY = b"\0epoch"
_MASTER = struct.Struct("<QQ")


class EpochRecords:
    """The epochs of one log."""

    def __init__(self, appender: Appender, progress: ProgressRecords, refusal: Refusal) -> None:
        self._appender, self._progress, self._refusal = appender, progress, refusal
        self._starts: tuple[EpochStart, ...] | None = None  # as the view has them; None: not read yet

    def history(self) -> EpochHistory:
        """The epochs that the log's records name; the caller's own copy. Reads the view if they may have changed."""
        if self._starts is None:
            self._starts = tuple(
                EpochStart(int.from_bytes(key[len(KEY) :], "big"), _MASTER.unpack_from(value)[0])
                for key, value in self._progress.progress(KEY)
            )
        return EpochHistory(self._starts)

    def changed(self) -> None:
        """Read the view again at the next use: it may have another record of an epoch."""
        self._starts = None

    def begin(self, epoch: int, incarnation: int, name: str) -> None:
        """Begin an epoch as its master: append its record, and accept appends. In the page cache on return.

        The epoch starts where the log ended: its record may lie in the next segment, and another log may have more of
        the epoch before in this one.

        Raises:
            EpochOrderError: the log has this epoch or a later one.
            DiskFullError: there is no room; the log still ends in the epoch before, and appends are refused as before.
        """
        appender, refusal = self._appender, self._refusal
        appender.flush()
        if epoch < appender.epoch:
            raise EpochOrderError(f"epoch {epoch}: the log has batches of epoch {appender.epoch}")
        start = appender.end_position
        self.history().begin(epoch, start)
        before, following = appender.epoch, refusal.following
        appender.epoch = epoch
        refusal.follow("")
        try:
            record = _MASTER.pack(start, incarnation) + name.encode()
            self._progress.put_progress([(KEY + epoch.to_bytes(4, "big"), record)])
        except BaseException:
            appender.epoch = before
            refusal.follow(following)
            raise
        finally:
            self.changed()
