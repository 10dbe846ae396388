"""The commit log of one engine node: composition of its packages, opening and closing.

`engine/log/port.py` describes what the layers above may call.
"""

import logging
from collections.abc import Callable
from functools import partial

from engine.config import LogConfig
from engine.env.base import Env
from engine.errors import StoreDamagedError
from engine.log.disk import DiskWatch
from engine.log.growth import TopicGrowth
from engine.log.lookup_index.look_up import LookUp
from engine.log.read.batch_search import BatchSearch
from engine.log.read.cold import ColdReads
from engine.log.read.log_reader import LogReader
from engine.log.read.queue_reader import QueueReader
from engine.log.read.raw_batches import RawBatches
from engine.log.read.retentions import RetentionPolicy, TopicRetentions
from engine.log.read.sealed_opener import SealedOpener
from engine.log.read.start_offsets import StartOffsets
from engine.log.read.unreadable import UnreadableBatches
from engine.log.segment.native import BatchReader
from engine.log.segment.patience import Patience
from engine.log.segment.segments import LogSegments
from engine.log.segment.side_files import SideFiles
from engine.log.timer_log import TimerLog
from engine.log.upkeep.forgetting import TopicForgetter
from engine.log.upkeep.log_time import LogTime
from engine.log.upkeep.recovered import Recovered
from engine.log.upkeep.recovery import Recovery
from engine.log.upkeep.relocation import Relocator
from engine.log.upkeep.repairs import LogRepairs
from engine.log.upkeep.retention import Retainer
from engine.log.upkeep.stale_view import drop_stale_view
from engine.log.upkeep.truncation import end_truncation, resume_truncation
from engine.log.view import View
from engine.log.write.apply import LogApply
from engine.log.write.writer import LogWriter

logger = logging.getLogger(__name__)


def open_log(
    env: Env, directory: str, config: LogConfig, *,
    retention_policy: RetentionPolicy | None = None, notify: Callable[[], None] | None = None, scans_all: bool = False,
) -> "Log":  # fmt: skip
    """Take the directory's lock, recover its log (creating one when it is missing) and return it, ready to serve.

    Blocks for as long as one segment takes to scan.

    Args:
        retention_policy: topics' own retentions; without it the log's retention counts for all.
        notify: called in a thread when records that were fetched for a reader have arrived; has to be safe there.
        scans_all: see Recovery.
    Raises:
        LockedError, VersionError, BehindCheckpointError, CorruptionError: the directory cannot be used as it is.
    """
    config.checked()
    env.make_directory(f"{directory}/log")
    unlock = env.lock(f"{directory}/lock")
    try:
        started = env.now_ms()
        is_truncated = resume_truncation(env, directory)
        drop_stale_view(env, directory)
        start = partial(_recover, env, directory, config, retention_policy, notify, unlock, is_truncated, scans_all)
        found = None
        try:
            found = start()
        except StoreDamagedError as error:
            logger.error(
                "%s; the view is rebuilt from the log, the damaged one is kept as %s",
                str(error), env.set_aside(f"{directory}/state"),
            )  # fmt: skip
        # Behind the handler: its traceback may hold an iterator, which keeps the damaged database open and locked.
        log, recovered = start() if found is None else found
    except BaseException:
        unlock()
        raise
    logger.info(
        "log=%s position=%d epoch=%d: recovered in %.3f s, %d bytes scanned",
        log.log_id.hex(), log.end_position, log.epoch, (env.now_ms() - started) / 1000, recovered.bytes_scanned,
    )  # fmt: skip
    return log


def _recover(
    env: Env, directory: str, config: LogConfig, policy: RetentionPolicy | None,
    notify: Callable[[], None] | None, unlock: Callable[[], None], is_truncated: bool, scans_all: bool,
) -> tuple["Log", Recovered]:  # fmt: skip
    store = env.open_store(f"{directory}/state", config.store_cache_bytes)
    try:
        view = View(store)
        recovered = Recovery(env, f"{directory}/log", config, view, scans_all=scans_all).run()
        if is_truncated:
            end_truncation(env, directory)
        return Log(env, f"{directory}/log", config, view, recovered, policy, notify, unlock), recovered
    except BaseException:
        store.close()
        raise


class Log:
    """Appends and reads batches. All methods belong to the loop's thread; those that block say so.

    Its methods are those of its parts, bound directly, so that a call costs no indirection.
    """

    def __init__(
        self, env: Env, directory: str, config: LogConfig, view: View, recovered: Recovered,
        retention_policy: RetentionPolicy | None, notify: Callable[[], None] | None, unlock: Callable[[], None],
    ) -> None:  # fmt: skip
        self.log_id, self.damage, self.synced_before = recovered.log_id, recovered.damage, recovered.synced
        self.headers_lost, self.raised, self.doubtful = recovered.headers_lost, recovered.raised, recovered.doubtful
        self._view, self._unlock, self._now_ms = view, unlock, env.now_ms
        batches = BatchReader(self.log_id)
        assert recovered.active is not None
        self.segments = LogSegments(
            recovered.active, recovered.sealed, config.sealed_open_max,
            SealedOpener(env, directory, batches, view, recovered.partial, recovered.waited).open, SideFiles(env),
        )  # fmt: skip
        self.writer = LogWriter(
            env, directory, config, view, self.segments, next_topic_id=recovered.next_topic_id,
            epoch=recovered.epoch, ids=recovered.ids, id_time=recovered.id_time, last=recovered.active_last,
            prepared=recovered.next, is_full=recovered.is_full,
        )  # fmt: skip
        self.follower = LogApply(
            env, batches, self.writer.appender, self.segments, self.writer.roller, view, self.writer.catalogue,
            self.writer.checkpoints, self.writer.durability, self.writer.epochs, recovered.fired,
        )  # fmt: skip
        """Takes a master's bytes in place of appends, on a slave."""
        self.raw = RawBatches(self.segments, self.writer.appender, batches)
        """Reads the bytes that slaves take."""
        self.cold = ColdReads(env, directory, config, notify)
        queues = QueueReader(
            self.log_id, self.writer.appender, view, self.segments, self.cold,
            UnreadableBatches(env.clock.monotonic_ms),
        )  # fmt: skip
        records = self.writer.progress
        self.retentions = TopicRetentions(view, records, self.writer.catalogue, config.retention_ms, retention_policy)
        self.log_time = LogTime(records, recovered.time, env.now_ms, self.writer.appender, recovered.newest_ms)
        self.start_offsets = StartOffsets(queues, view, self.log_time.time, self.retentions, records)
        self.reader = LogReader(queues, self.start_offsets, self.writer.appender, self.cold)
        self._forgetter = TopicForgetter(
            view, self.writer.catalogue, self.writer.creator, self.segments, queues, self.start_offsets, self.retentions,
            self.writer.durability, self.writer.copied,
        )  # fmt: skip
        self._compose_upkeep(env, directory, config, queues, batches)
        self.for_timers = TimerLog(
            self.writer, queues, self.segments, view, env.now_ms, env.clock.monotonic_ms, config.segment_bytes,
            recovered.fired, Patience(env, config.start_wait_ms), recovered.waited,
        )  # fmt: skip
        self._publish()

    def _compose_upkeep(
        self, env: Env, directory: str, config: LogConfig, queues: QueueReader, batches: BatchReader
    ) -> None:
        disk = DiskWatch(env, directory, config)
        relocator = Relocator(
            self.writer.control, self._view, batches, lambda *queue: queues.bounds(*queue)[1], env.clock.monotonic_ms
        )
        self.retention = Retainer(
            env,
            directory,
            config,
            self.segments,
            self._view,
            self.retentions,
            self.log_time,
            relocator,
            self.writer,
            disk,
        )
        """Deletes segments and watches the disk, as long as the node calls its `step()`."""
        self.look_up = LookUp(env, directory, config, self.log_id, self.segments, self.writer.appender, disk)
        """Finds messages by id and by key."""
        self.repairs = LogRepairs(env, directory, batches, self.segments, self._view, self.damage)
        """Repairs damaged segments from another broker's log, as long as a thread calls its `steps()`."""

    def _publish(self) -> None:
        """The parts' methods under the names that the port gives them."""
        writer, reader = self.writer, self.reader
        self.appender = writer.appender
        """Native form: `engine.log.write._append.Appender`, for cimport; the reference has the same methods."""
        self.append = writer.appender.append
        self.batch_search = BatchSearch(self.log_id, self.appender, self.segments)
        self.raise_ends, self.put_ends_raised = writer.raise_ends, self._view.put_ends_raised
        self.watch = writer.appender.watch
        self.when_durable, self.when_synced = writer.durability.when_durable, writer.durability.when_synced
        self.growth = TopicGrowth(
            writer.creator.create_topics, writer.catalogue.topic, reader.bounds, writer.progress.put_progress,
            writer.progress.progress, self._now_ms, lambda: writer.catalogue.next_topic_id, self._forgetter.forget,
        )  # fmt: skip
        self.for_timers.old_counts = self.growth.old_counts
        self.create_topics, self.forget_topic = self.growth.create_topics, self.growth.forget_topic
        self.end_if_empty = self._forgetter.end_if_empty
        self.epochs, self.refusal, self.copied = writer.epochs, writer.refusal, writer.copied
        self.topic, self.topic_by_id = writer.catalogue.topic, writer.catalogue.topic_by_id
        self.topics = writer.catalogue.topics
        self.put_progress, self.progress = writer.progress.put_progress, writer.progress.progress
        self.replayed_progress, self.since_leases_ms = writer.progress.replayed_progress, self.follower.since_leases_ms
        self.bounds, self.read, self.offset_at_time = reader.bounds, reader.read, reader.offset_at_time
        self.end, self.used_queues, self.distance = reader.end, reader.used_queues, reader.distance
        self.purge = self.start_offsets.purge
        self.take_woken, self.is_fetching = reader.take_woken, reader.is_fetching
        self.checkpoint = writer.checkpoints.checkpoint

    @property
    def epoch(self) -> int:
        """Epoch that is written into batches."""
        return self.appender.epoch

    @property
    def end_position(self) -> int:
        """Bytes below are in the page cache and readable."""
        return self.appender.end_position

    @property
    def topics_position(self) -> int:
        """All topics that exist are durable once the log is synced up to here."""
        return self.writer.creator.topics_position

    @property
    def durable_position(self) -> int:
        """Bytes below are synced."""
        return self.writer.durability.durable_position

    def lead(self, when_confirmed: Callable[[int, Callable[[], None]], None]) -> None:
        """Prepare to append as the master of a group: read again what was read at the start, and wait for the others.

        Args:
            when_confirmed: calls back once bytes below a position are confirmed.
        """
        self.writer.durability.when_confirmed = when_confirmed
        self.start_offsets.load()
        self.retentions.load()
        self.log_time.follow(self.follower.newest_ms, is_stamped=self.follower.has_applied)

    def cease(self) -> None:
        """Take a master's bytes from now on, until the next `lead()`. Everything that this log had appended is synced.

        The node over this log has ended; all its fired timers are marked.
        """
        self.writer.durability.when_confirmed = None
        self.retention.cease()
        self.growth.forget_listeners()
        self.take_woken()
        self.follower.go_on(self._now_ms())

    def close(self) -> None:
        """Write staged batches, sync, release the lock. Blocks. A second call does nothing."""
        if not self.writer.stop():
            return
        self.retention.close()
        self.cold.close()
        self.look_up.close()
        self.writer.close()
        self.segments.close()
        self._view.store.close()
        self._unlock()
