"""Retention: the oldest segment is deleted when it is too old or room is needed. One deletion runs at a time.

A segment is deleted in this order. What it alone holds is appended again and synced. It leaves the set that readers
use. Its file, its side files and its keys in the view are removed in a thread. A crash in between leaves a file that is
deleted again, a side file without its segment, which the next start removes, or keys of a missing segment, which
readers skip.
"""

import logging
from collections.abc import Generator, Iterator

from engine.config import LogConfig
from engine.env.base import Env
from engine.errors import DiskFullError
from engine.log.disk import DiskLevel, DiskWatch
from engine.log.port import PendingTimers
from engine.log.read.start_offsets import StartOffsets
from engine.log.segment.segment import Segment
from engine.log.segment.segments import LogSegments
from engine.log.upkeep.expiry import Expiry
from engine.log.upkeep.relocation import Relocator
from engine.log.upkeep.removal import SegmentRemoval
from engine.log.view import View
from engine.log.write.writer import LogWriter

logger = logging.getLogger(__name__)

BUSY_MS = 5
"""Pause between two steps of one deletion."""

CHECK_MS = 1000


class Retainer:
    """Call `step()` from the loop, again after as many milliseconds as it returns. A step takes a few milliseconds."""

    def __init__(
        self, env: Env, directory: str, config: LogConfig, segments: LogSegments, view: View,
        start_offsets: StartOffsets, relocator: Relocator, writer: LogWriter, disk: DiskWatch,
    ) -> None:  # fmt: skip
        self._env, self._config, self._segments, self._view = env, config, segments, view
        self._relocator, self.disk = relocator, disk
        self._refusal, self._durability, self._checkpoints = writer.refusal, writer.durability, writer.checkpoints
        self._timers: PendingTimers | None = None
        self.deleted_segments = self.deleted_bytes = self.early_segments = 0
        self._expiry = Expiry(env, segments, start_offsets, config.retention_ms)
        self._side = segments.sealed.side
        self._removal = SegmentRemoval(env, directory, view, self._side, sorted(segments.sealed.bases))
        self._round: Iterator[None] | None = None
        self._waits = False
        self._next_ms = self._checked_ms = 0
        self._earliest = (-1, 0)

    @property
    def oldest_base(self) -> int:
        """Position of the first byte that is still in the log."""
        return self._segments.oldest_base

    @property
    def log_bytes(self) -> int:
        """Size of all segment files. Positions are dense over files, and only the oldest are deleted."""
        return self._segments.active.next_base - self.oldest_base

    @property
    def side_bytes(self) -> int:
        """Size of the files beside the segments."""
        return self._side.size_bytes

    @property
    def segments(self) -> int:
        """Number of segment files, without the one made ahead."""
        return len(self._segments.sealed.bases) + len(self._segments.sealing) + 1

    @property
    def earliest_ms(self) -> int:
        """Creation time of the oldest segment; its messages are hardly older."""
        base = self.oldest_base
        if self._earliest[0] != base:
            segment = self._segments.sealed.get(base) or next(iter(self._segments.sealing), self._segments.active)
            self._earliest = (base, segment.header.created_ms)
        return self._earliest[1]

    def step(self, timers: PendingTimers | None = None) -> int:
        """Check the disk and do the next piece of work; returns in how many milliseconds to call again.

        Args:
            timers: relocates delayed messages that are pending in a segment before its deletion. An engine that has
                timers passes them in every call.
        """
        self._timers = timers
        now_ms = self._env.now_ms()
        if not 0 <= now_ms - self._checked_ms < CHECK_MS:
            self._checked_ms = now_ms
            self._refusal.refuse(self.disk.sentence if self.disk.check() >= DiskLevel.REFUSE else "")
        if self._round is None:
            if now_ms < self._next_ms <= now_ms + self._config.delete_interval_ms:
                return min(self._next_ms - now_ms, CHECK_MS)
            self._round = self._delete_oldest(now_ms)
        try:
            next(self._round)
        except StopIteration:
            self._round = None
            return min(self._config.delete_interval_ms, CHECK_MS)
        return BUSY_MS

    def close(self) -> None:
        """Finish the removal that has begun. Blocks."""
        self._round = None
        self._removal.close()

    def _delete_oldest(self, now_ms: int) -> Generator[None, None, None]:
        """One round: choose, relocate, sync, remove. Yields where the loop may do other work."""
        base = min(self._segments.sealed.bases, default=None)
        if base is None:
            return
        early = self._needs_room()
        if not early and not (yield from self._expiry.is_expired(base, now_ms)):
            return
        if base >= self._view.replay_base:
            # A restart would miss it: the current checkpoint says that replay begins here.
            self._checkpoints.request()
            return
        self._next_ms = now_ms + self._config.delete_interval_ms
        segment = self._segments.sealed.get(base)
        assert segment is not None
        if self._timers is not None:
            try:
                yield from self._timers.relocate(base)
            except DiskFullError as error:
                logger.error("file=%s: kept: its delayed messages cannot be relocated: %s", segment.path, error)
                return
        yield from self._relocate(segment)
        self._waits = True
        self._durability.when_durable(self._durability.end_position, self._synced)
        while self._waits:
            yield
        self._remove(segment, early)

    def _needs_room(self) -> str:
        """Reason to delete the oldest segment whatever its age; empty when there is none."""
        if self.disk.level >= DiskLevel.DELETE:
            return self.disk.sentence
        if self._config.log_bytes_max and self._config.log_bytes_max < self.log_bytes + self.side_bytes:
            words = f"the log has {self.log_bytes >> 20} MiB and {self.side_bytes >> 20} MiB beside it"
            return f"{words}, its limit is {self._config.log_bytes_max >> 20} MiB"
        return ""

    def _relocate(self, segment: Segment) -> Iterator[None]:
        try:
            yield from self._relocator.relocate(segment)
        except DiskFullError as error:
            # Deleting it frees the room that is missing. The view has all of it; only without the view would it be
            # lost.
            logger.error("file=%s: deleted although not all of it could be relocated: %s", segment.path, error)

    def _synced(self) -> None:
        self._waits = False

    def _remove(self, segment: Segment, early: str) -> None:
        self._segments.sealed.remove(segment.base)
        if self._timers is not None:
            self._timers.forget(segment.base)
        self.deleted_segments += 1
        self.deleted_bytes += segment.header.size
        if early:
            self.early_segments += 1
            logger.warning("file=%s: deleted before its retention ended: %s", segment.path, early)
        else:
            logger.info("file=%s: deleted, all of its topics' retentions have passed", segment.path)
        self._removal.submit(segment)
