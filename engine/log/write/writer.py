"""The writer: one appender, with the parts that roll to the next segment, sync, seal and refuse."""

from collections.abc import Iterable

from engine.config import LogConfig
from engine.env.base import Env, File
from engine.log.format import KIND_COUNTERS, pack_counter
from engine.log.segment.id_time import IdTime
from engine.log.segment.last_batch import LastBatch
from engine.log.segment.native import IdWindow
from engine.log.segment.segment import Segment
from engine.log.segment.segments import LogSegments
from engine.log.types import QueueEnd
from engine.log.view import View
from engine.log.write.catalogue import TopicCatalogue, TopicCreator
from engine.log.write.checkpoint import CheckpointJobs, Checkpoints
from engine.log.write.control import ControlWriter
from engine.log.write.copied import CopiedQueues
from engine.log.write.durability import Durability
from engine.log.write.epoch_records import EpochRecords
from engine.log.write.native import Appender
from engine.log.write.next_offsets import NextOffsets
from engine.log.write.progress import ProgressRecords
from engine.log.write.refusal import Refusal
from engine.log.write.roller import SegmentRoller
from engine.log.write.syncer import InlineSyncer, ThreadSyncer, sync_or_die


class LogWriter:
    """Owns the end of the log. On a slave `LogApply` drives its parts.

    Args:
        segments: the active one is entered at its end.
        next_topic_id, epoch: as recovered.
        ids, id_time: window of ids that flagged batches are checked against, and the time by which it forgets.
        last: the active segment's last batch.
        prepared: the segment after the active one, if it exists already.
        is_full: there is no room for the rest of the active segment.
    """

    def __init__(
        self, env: Env, directory: str, config: LogConfig, view: View, segments: LogSegments, *,
        next_topic_id: int, epoch: int, ids: IdWindow, id_time: IdTime, last: LastBatch, prepared: Segment | None,
        is_full: bool,
    ) -> None:  # fmt: skip
        self._view = view
        self._env, self._segments, active = env, segments, segments.active
        log_id = active.header.log_id
        self.catalogue = TopicCatalogue(view, next_topic_id)
        offsets = NextOffsets(view, next_topic_id, config.counters_max)
        self._syncer = (
            ThreadSyncer(env, self._unsynced, env.sync_worker)
            if env.has_threads()
            else InlineSyncer(env, self._unsynced)
        )
        self._jobs = CheckpointJobs(env, log_id, view, segments, offsets)
        self.roller = SegmentRoller(
            env, directory, config, segments, offsets, self.catalogue, self._syncer, self._jobs, prepared
        )
        self.appender = Appender(env, log_id, epoch, ids, id_time, offsets, self.catalogue, self.roller)
        self.roller.enter(self.appender, active, active.base + active.end_at, last, is_full=is_full)
        # Bytes that recovery kept were in the file before, and recovery has synced the file.
        self._syncer.advance(self.appender.end_position)
        self.durability = Durability(self.appender, segments, self._syncer)
        self.refusal = Refusal(self.appender)
        self.checkpoints = Checkpoints(
            self._jobs, view, self.catalogue, self.appender, self._syncer, config.pending_max
        )
        self.control = ControlWriter(self.appender, env.now_ms, config.segment_bytes // 4)
        self.creator = TopicCreator(self.catalogue, self.control, self.appender, self.checkpoints, config.queues_max)
        self.progress = ProgressRecords(view, self.control, self.checkpoints)
        self.epochs = EpochRecords(self.appender, self.progress, self.refusal)
        self.copied = CopiedQueues(
            view, self.appender, self.progress, self.checkpoints, self.refusal, self.catalogue
        )  # fmt: skip

    def raise_ends(self, ends: Iterable[QueueEnd], in_view: Iterable[QueueEnd] = ()) -> list[QueueEnd]:
        """Have queues continue at these offsets at least, by records in the log.

        All are raised before the first record is appended: it may begin a segment, and what only the index of the full
        one knows would seem to be known.

        Args:
            in_view: those that the view has, and no record.
        Returns: those whose end was below.
        """
        self.refusal.check()
        raised = [each for each in ends if self._is_above_end(*each)]
        for topic_id, queue, next_offset in raised:
            index = self.appender.index
            known = index.next_offset(topic_id, queue)
            free = self.appender.free_offset(topic_id, queue) if known is None else 0
            index.raise_next(topic_id, queue, max(next_offset, free))
            self._view.put_counter(topic_id, queue, next_offset)
        self.control.append(KIND_COUNTERS, [pack_counter(*each) for each in [*in_view, *raised]])
        return raised

    def _is_above_end(self, topic_id: int, queue: int, next_offset: int) -> bool:
        index = self.appender.index
        known = index.next_offset(topic_id, queue)
        # A queue without a batch in the active segment is not in its index file: the view has to know its end.
        if known is None or index.first_offset(topic_id, queue) is None:
            known = self.appender.next_offset(topic_id, queue)
        return next_offset > known

    def _unsynced(self) -> list[File]:
        """Files of full segments that no job has synced yet: the sealing thread syncs a segment before it seals it."""
        return [segment.file for segment in tuple(self._segments.sealing)]

    def stop(self) -> bool:
        """Write staged batches and refuse further ones. Returns False when the log is closed already."""
        if not self.refusal.close():
            return False
        self.appender.flush()
        return True

    def close(self) -> None:
        """End the threads and sync the active segment. Blocks. After `stop`."""
        self.roller.close()
        self._jobs.finish()
        self._syncer.close()
        sync_or_die(self._env, self._segments.active.file)
