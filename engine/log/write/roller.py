"""Rolling: the log continues in the next segment, which is made ahead of its use."""

import errno
import logging

from common.limited_log import LimitedLog
from engine.config import LogConfig
from engine.env.base import Env
from engine.errors import DiskFullError
from engine.log.format import NOT_BEGUN, SEGMENT_HEADER_SIZE, SegmentHeader
from engine.log.segment.last_batch import NO_BATCH, LastBatch
from engine.log.segment.segment import Segment, create_segment, note_previous_end, replace_header
from engine.log.segment.segments import LogSegments
from engine.log.write.checkpoint import CheckpointJobs, TopicIds
from engine.log.write.native import Appender
from engine.log.write.next_offsets import NextOffsets
from engine.log.write.syncer import Syncer

limited = LimitedLog(logging.getLogger(__name__))


class SegmentRoller:
    """Moves the appender from a full segment to the next one.

    Args:
        prepared: a segment that was made ahead before the log was opened, if there is one.
    """

    def __init__(
        self, env: Env, directory: str, config: LogConfig, segments: LogSegments, offsets: NextOffsets,
        topics: TopicIds, syncer: Syncer, jobs: CheckpointJobs, prepared: Segment | None,
    ) -> None:  # fmt: skip
        self._env, self._directory, self._segment_bytes = env, directory, config.segment_bytes
        self._segments, self._offsets, self._topics = segments, offsets, topics
        self._syncer, self._jobs = syncer, jobs
        self._preparer = env.background()
        self.prepared = prepared
        """The next segment, once it is made."""
        self._is_preparing = False
        self._refused_at = -1.0
        self.fault = ""
        """Why there is no space for a next segment; empty when there is one, or when that is not known."""

    def enter(
        self, appender: Appender, segment: Segment, position: int, last: LastBatch, *, is_full: bool = False
    ) -> None:
        """Write to this segment from `position` on, after its last batch.

        Args:
            is_full: there is no room for further bytes in it: the next record goes to the next segment.
        """
        assert segment.index is not None
        appender.set_segment(segment.file, segment.index, segment.next_base, position, last.at, last.crc)
        if is_full:
            appender.end_segment()
        self._segments.active = segment
        self._syncer.switch(segment.file, position)
        if self.prepared is None:
            self._submit(appender)

    def roll(self, appender: Appender) -> bool:
        """Continue in the next segment, which usually is ready. Returns False when the disk has no room for one."""
        following = self._take_prepared(appender)
        if following is None:
            return False
        try:
            note_previous_end(self._env, following, appender.end_position - self._segments.active.base)
        except DiskFullError as error:
            limited.warning("%s: appends are refused", error)
            self.prepared = following
            return False
        self._continue_in(appender, following)
        return True

    def roll_to(self, appender: Appender, header: SegmentHeader) -> None:
        """Continue in the next segment with this header, which is of a master. Blocks. Raises DiskFullError."""
        self._preparer.drain()
        following, self.prepared = self.prepared, None
        if following is not None and following.header.size != header.size:
            following.close()
            following = None
        if following is None:
            following = create_segment(
                self._env, self._directory, header
            )  # takes the name of the one that was prepared
        else:
            replace_header(self._env, following, header)
        self._continue_in(appender, following)
        self._segments.sealed.close_unread()  # a master's consumers read what is sealed, a slave's are far behind

    def _continue_in(self, appender: Appender, following: Segment) -> None:
        full = self._segments.active
        full.end_at = appender.end_position - full.base
        last = LastBatch(appender.last_at, appender.last_crc)
        assert full.index is not None
        self._offsets.add(full.index, self._topics.next_topic_id)
        self._segments.sealing.append(full)
        following.open_index(full.index.used)
        self.enter(appender, following, following.base + SEGMENT_HEADER_SIZE, NO_BATCH)
        self._jobs.submit_seal(full, last, self._topics.next_topic_id, appender.epoch)

    def close(self) -> None:
        """End the thread and close the prepared segment. Blocks for as long as making a segment takes."""
        self._preparer.stop()
        if self.prepared is not None:
            self.prepared.close()

    def _create(self, epoch: int, created_ms: int) -> Segment:
        active = self._segments.active.header
        header = SegmentHeader(
            active.log_id, self._segments.active.next_base, epoch, self._segment_bytes, created_ms, NOT_BEGUN
        )
        try:
            made = create_segment(self._env, self._directory, header)
        except DiskFullError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT):
                self.fault = str(error)
            raise
        self.fault = ""
        return made

    def _created_ms(self, appender: Appender) -> int:
        """Now; as batches, not behind the log: a start looks for ids in no segment before three that are too old."""
        return max(self._env.now_ms(), appender.stored_ms_min)

    def _submit(self, appender: Appender) -> None:
        """Have the next segment made in the background, once: a second one would take the first one's name."""
        if not self._is_preparing:
            self._is_preparing = True
            epoch, created_ms = appender.epoch, self._created_ms(appender)
            self._preparer.submit(lambda: self._prepare(epoch, created_ms))

    def _prepare(self, epoch: int, created_ms: int) -> None:
        """Create the next segment in the background. Without room for it, the roll tries again."""
        try:
            self.prepared = self._create(epoch, created_ms)
        except DiskFullError as error:
            limited.warning("%s: the current segment is the last one", error)
        finally:
            self._is_preparing = False

    def retry(self, appender: Appender, free_bytes: int) -> None:
        """Create the next segment in the background if there was no space for it, and there is now."""
        if self.fault and self.prepared is None and free_bytes > self._segment_bytes:
            self._submit(appender)

    def _take_prepared(self, appender: Appender) -> Segment | None:
        """The prepared segment; made here, which blocks, when it is not ready. None when there is no room."""
        if self.prepared is None:
            self._preparer.drain()
        if self.prepared is None:
            if self._env.now_ms() == self._refused_at:
                return None
            try:
                self.prepared = self._create(appender.epoch, self._created_ms(appender))
            except DiskFullError:
                # Once per millisecond: every batch of a frame would try otherwise.
                self._refused_at = self._env.now_ms()
                return None
        following, self.prepared = self.prepared, None
        return following
