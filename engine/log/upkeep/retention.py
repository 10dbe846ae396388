"""Retention: the oldest segment is deleted when it is too old or room is needed. One deletion runs at a time.

A segment is deleted in this order. What it alone holds is appended again and synced. It leaves the set that readers
use. Its file, its side files and its keys in the view are removed in a thread. A crash in between leaves a file that is
deleted again, a side file without its segment, which the next start removes, or keys of a missing segment, which
readers skip.

Ages are by the believed time (`common.believed_time`) and intervals by the monotonic clock, so a wall clock that is set
deletes nothing. A topic whose retention is unknown keeps its segments (`engine.log.read.retentions`).
"""

import logging
from collections.abc import Generator

from common.limited_log import LimitedLog
from engine.config import LogConfig
from engine.env.base import Env
from engine.errors import DiskFullError, LogError
from engine.log.disk import DiskLevel, DiskWatch
from engine.log.port import PendingTimers
from engine.log.read.retentions import TopicRetentions
from engine.log.segment.segment import Segment
from engine.log.segment.segments import LogSegments
from engine.log.upkeep.expiry import Expiry
from engine.log.upkeep.log_time import LogTime
from engine.log.upkeep.relocation import Relocator
from engine.log.upkeep.removal import SegmentRemoval
from engine.log.view import View
from engine.log.write.writer import LogWriter

logger = logging.getLogger(__name__)
NO_DIGITS = str.maketrans("", "", "0123456789,")
"""A sentence that counts down is one kind of line."""

limited = LimitedLog(logger)

BUSY_MS = 5
"""Pause between two steps of one deletion."""

CHECK_MS = 1000

DELETED = b"\0deleted"
"""Key of progress, in a log with replicas: the position below which segments are gone, u64 little-endian."""

KEEP_MS = 50
"""Pause between two steps that keep the retentions of topics: a few percent of the loop's time."""


class Retainer:
    """Call `step()` from the loop, again after as many milliseconds as it returns. A step takes a few milliseconds."""

    def __init__(
        self, env: Env, directory: str, config: LogConfig, segments: LogSegments, view: View,
        retentions: TopicRetentions, log_time: LogTime, relocator: Relocator, writer: LogWriter, disk: DiskWatch,
    ) -> None:  # fmt: skip
        self._env, self._config, self._segments, self._view = env, config, segments, view
        self._retentions, self._log_time, self._relocator, self.disk = retentions, log_time, relocator, disk
        self._clock = env.clock
        self._refusal, self._durability, self._checkpoints = writer.refusal, writer.durability, writer.checkpoints
        self._roller, self._appender, self._progress = writer.roller, writer.appender, writer.progress
        self._timers: PendingTimers | None = None
        self.deleted_segments = self.deleted_bytes = self.early_segments = 0
        self._expiry = Expiry(env, segments, retentions, config.retention_ms)
        self._side = segments.sealed.side
        self._removal = SegmentRemoval(env, directory, view, self._side, sorted(segments.sealed.bases))
        self._round: Generator[None, None, None] | None = None
        self._waits = False
        self._stuck = ""
        self._next_ms = self._keep_ms = 0
        self._checked_ms: int | None = None
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

    @property
    def held(self) -> str:
        """Reason why old segments are not deleted by age at present; empty when there is none."""
        topic_id = self._expiry.unknown(self._log_time.time.now_ms())
        if topic_id is not None and (topic := self._view.topic_by_id(topic_id)) is not None:
            return (
                f"topic={topic.name}: no definition can be found or read, so its segments are kept: define it again, "
                "or delete it"
            )
        return self._log_time.time.sentence

    @property
    def health(self) -> bool | str:
        """For /readyz: True, or why appends are refused."""
        if fault := self._checkpoints.fault:
            return f"disk error: sends are refused: {fault}"
        if self.disk.health is True and (fault := self._stuck or self._roller.fault):
            return f"disk full: sends are refused: {fault}"
        return self.disk.health

    @property
    def clock_ahead_ms(self) -> int:
        """By how much the wall clock is ahead of the time by which messages grow old."""
        return self._log_time.time.ahead_ms

    def accept_clock(self) -> None:
        """Let the wall clock count at once: an operator says that it is right. Raises nothing on a full disk."""
        self._log_time.accept()

    def step(self, timers: PendingTimers | None = None) -> int:
        """Check the disk and do the next piece of work; returns in how many milliseconds to call again.

        Args:
            timers: relocates delayed messages that are pending in a segment before its deletion. An engine that has
                timers passes them in every call.
        """
        self._timers = timers
        now_ms = self._clock.monotonic_ms()
        if self._checked_ms is None or now_ms - self._checked_ms >= CHECK_MS:
            self._checked_ms = now_ms
            self._check()
        keeps_on = self._keep_some(now_ms)
        wait_ms = self._delete(now_ms)
        return min(wait_ms, KEEP_MS) if keeps_on else wait_ms

    def _check(self) -> None:
        """Look at the disk and at the clocks."""
        level = self.disk.check()
        self._roller.retry(self._appender, self.disk.free)
        # What is left of the last segment is for relocation, progress and topics.
        full = self._stuck or self._roller.fault
        if level >= DiskLevel.REFUSE or self.disk.is_gone:
            self._refusal.refuse(self.disk.refusal)
        elif full:
            self._refusal.refuse(f"disk full: {full}; nothing was stored")
        else:
            fault = self._checkpoints.fault
            self._refusal.refuse(f"disk error: {fault}; nothing was stored" if fault else "")
        self._checkpoints.retry()
        self._segments.sealed.take_added()
        self._log_time.check()
        if held := self.held:
            limited.warning("retention: %s", held, about=held.translate(NO_DIGITS))

    def _keep_some(self, now_ms: int) -> bool:
        """Keep the retentions of some topics. Returns whether more are to be kept soon."""
        if now_ms < self._keep_ms:
            return True
        try:
            keeps_on = self._retentions.keep_some()
        except DiskFullError as error:
            limited.warning("retentions of topics are not kept: %s: retrying", error)
            return False
        self._keep_ms = now_ms + KEEP_MS if keeps_on else 0
        return keeps_on

    def _delete(self, now_ms: int) -> int:
        """Do the next step of a deletion; returns in how many milliseconds to call again."""
        if self._round is None:
            if now_ms < self._next_ms:
                return min(self._next_ms - now_ms, CHECK_MS)
            self._round = self._delete_oldest(now_ms)
        try:
            next(self._round)
        except StopIteration:
            self._round = None
            return min(self._config.delete_interval_ms, CHECK_MS)
        return BUSY_MS

    def deleted_to(self) -> int:
        """Position below which the log says that its segments are gone."""
        return next((int.from_bytes(value, "little") for _, value in self._progress.progress(DELETED)), 0)

    def follow(self, deleted_to: int) -> None:
        """Remove the segments below a position, as the master of this log has done; some of them later."""
        for base in sorted(self._segments.sealed.bases):
            segment = self._segments.sealed.get(base) if base < self._view.replay_base else None
            if segment is None or segment.next_base > deleted_to:
                return
            self._view.put_all_ended(base)
            self._remove(segment, "")

    def cease(self) -> None:
        """Give up a deletion that has not removed anything yet: another broker is master, and decides."""
        if self._round is not None:
            self._round.close()
        self._round = self._timers = None
        self._waits, self._stuck = False, ""

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
        if not early:
            self._stuck = ""
        if not early and not (yield from self._expiry.is_expired(base, self._log_time.time.now_ms())):
            return
        if base >= self._view.replay_base:
            # A restart would miss it: the current checkpoint says that replay begins here.
            self._checkpoints.request()
            return
        self._next_ms = now_ms + self._config.delete_interval_ms
        # Readers of other segments close the ones that were used longest ago.
        self._segments.sealed.pin(base)
        try:
            segment = self._segments.sealed.get(base)
            assert segment is not None
            try:
                yield from self._make_free(segment)
                if self._timers is not None:
                    self._timers.forget(segment.base)  # it may fail, and readers still have the segment
            except (LogError, OSError) as error:
                self._keep(segment, early, error)
            else:
                self._stuck = ""
                self._remove(segment, early)
        finally:
            self._segments.sealed.unpin(base)

    def _make_free(self, segment: Segment) -> Generator[None, None, None]:
        """Append again and sync what the segment alone holds, into the room that messages may not use.

        Raises LogError, OSError: it has to stay.
        """
        if self._timers is not None:
            yield from self._timers.relocate(segment.base)
        yield from self._relocator.relocate(segment)
        if self._durability.when_confirmed is not None:
            self._progress.put_progress([(DELETED, segment.next_base.to_bytes(8, "little"))])
        self._waits = True
        self._durability.when_durable(self._durability.end_position, self._synced)
        while self._waits:
            yield

    def _keep(self, segment: Segment, early: str, error: LogError | OSError) -> None:
        """Keep a segment of which not all could be relocated.

        If it was to make room, sends are refused until it can go: they would take the room that relocation needs.
        """
        limited.error("file=%s: kept: what it alone holds cannot be relocated: %s", segment.path, error)
        if early:
            self._stuck = (
                f"{segment.path} has to go, and what it alone holds cannot be stored again ({error}): free some space "
                "on its disk"
            )
            self._check()

    def _needs_room(self) -> str:
        """Reason to delete the oldest segment whatever its age; empty when there is none."""
        if self.disk.level >= DiskLevel.DELETE:
            return self.disk.sentence
        if self._config.log_bytes_max and self._config.log_bytes_max < self.log_bytes + self.side_bytes:
            words = f"the log has {self.log_bytes >> 20} MiB and {self.side_bytes >> 20} MiB beside it"
            return f"{words}, its limit is {self._config.log_bytes_max >> 20} MiB"
        return ""

    def _synced(self) -> None:
        self._waits = False

    def _remove(self, segment: Segment, early: str) -> None:
        self._segments.sealed.remove(segment.base)
        self.deleted_segments += 1
        self.deleted_bytes += segment.header.size
        if early:
            self.early_segments += 1
            limited.warning("file=%s: deleted before its retention ended: %s", segment.path, early)
        else:
            limited.info("file=%s: deleted, all of its topics' retentions have passed", segment.path)
        self._removal.submit(segment)
