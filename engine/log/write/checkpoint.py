"""Checkpoints: jobs in the sealing thread that bring full segments and the view to the disk, in order."""

from typing import Protocol

from engine.env.base import Env
from engine.errors import CheckpointError
from engine.log.segment.last_batch import LastBatch
from engine.log.segment.segment import Segment
from engine.log.segment.segments import LogSegments
from engine.log.view import Checkpoint, View
from engine.log.write.native import Appender
from engine.log.write.next_offsets import NextOffsets
from engine.log.write.sealer import Sealer, seal, write_checkpoint, write_directory
from engine.log.write.syncer import Syncer, sync_or_die

BACKLOG_MAX = 8
"""Full segments and checkpoints that may wait while the disk returns errors; then appends are refused."""


class CheckpointJobs:
    """Submits the jobs. The state that a job writes is frozen here, in the loop; the writing is done in the thread."""

    def __init__(self, env: Env, log_id: bytes, view: View, segments: LogSegments, offsets: NextOffsets) -> None:
        self._env, self._log_id, self._view = env, log_id, view
        self._segments, self._offsets = segments, offsets
        self._sealer = Sealer(env.background())

    @property
    def is_idle(self) -> bool:
        """Whether no job waits or runs."""
        return self._sealer.is_idle

    def submit_seal(self, segment: Segment, last: LastBatch, next_topic_id: int, epoch: int) -> None:
        """Seal a full segment, then write a checkpoint at its end. `last`: its last batch."""
        frozen = self._view.freeze()
        end = segment.base + segment.end_at
        checkpoint = Checkpoint(self._log_id, segment.next_base, end, next_topic_id, epoch)

        def job() -> None:
            seal(self._env, segment, last)
            write_directory(self._view, segment)
            write_checkpoint(self._view, frozen, checkpoint)
            self._forget(segment)

        self._sealer.submit(job)

    def submit_checkpoint(self, position: int, next_topic_id: int, epoch: int) -> None:
        """Sync the active segment, then write a checkpoint at `position`, the end of the log."""
        active = self._segments.active
        frozen = self._view.freeze()
        checkpoint = Checkpoint(self._log_id, active.base, position, next_topic_id, epoch)

        def job() -> None:
            # Full segments before this one were synced by their own jobs, which came first.
            sync_or_die(self._env, active.file)
            write_checkpoint(self._view, frozen, checkpoint)

        self._sealer.submit(job)

    @property
    def fault(self) -> str:
        """Why appends have to be refused: jobs fail, and each that waits keeps an index in memory. Empty: no reason."""
        error = self._sealer.error
        if not error or self._sealer.backlog < BACKLOG_MAX:
            return ""
        return f"full segments cannot be sealed: {error}"

    def retry(self) -> None:
        """Go on with the jobs after one has failed."""
        self._sealer.retry()

    def finish(self) -> str:
        """Block until all jobs have run or one could not. Returns why; empty when all have."""
        return self._sealer.finish()

    def _forget(self, segment: Segment) -> None:
        """Drop the segment's entries from memory; keep its counters while there is room. Runs in the thread."""
        assert segment.index is not None
        self._offsets.keep_counters(segment.index)
        self._segments.finish_sealing(segment)
        self._offsets.trim(len(self._segments.sealing))


class TopicIds(Protocol):
    """The part of the catalogue that a checkpoint needs."""

    next_topic_id: int


class Checkpoints:
    """Writes checkpoints of the log as it is now.

    Args:
        pending_max: changed keys that may wait in memory for the next checkpoint.
    """

    def __init__(
        self, jobs: CheckpointJobs, view: View, topics: TopicIds, appender: Appender, syncer: Syncer,
        pending_max: int,
    ) -> None:  # fmt: skip
        self._jobs, self._view, self._topics = jobs, view, topics
        self._appender, self._syncer, self._pending_max = appender, syncer, pending_max

    def checkpoint(self) -> None:
        """Sync the log and bring the view in the store up to date. Blocks. Raises CheckpointError; the log is intact."""
        self._appender.flush()
        position = self._appender.end_position
        self._submit()
        if error := self._jobs.finish():
            raise CheckpointError(
                f"checkpoint not written: {error}: the log itself is whole, and the next start replays it"
            )
        self._syncer.advance(position)

    def request(self) -> None:
        """Submit one to the background, unless the sealing thread is busy."""
        if self._jobs.is_idle:
            self._submit()

    @property
    def fault(self) -> str:
        """Why appends have to be refused; empty: no reason."""
        return self._jobs.fault

    def retry(self) -> None:
        """Go on with full segments and checkpoints that could not be written."""
        self._jobs.retry()

    def bound_pending(self) -> None:
        """Submit one when many keys have changed since the last one."""
        if self._view.pending_count > self._pending_max:
            self._submit()

    def _submit(self) -> None:
        appender = self._appender
        self._jobs.submit_checkpoint(appender.end_position, self._topics.next_topic_id, appender.epoch)
