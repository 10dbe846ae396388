"""The commit log of one engine node: what the layers above it call."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from engine.config import LogConfig
from engine.env.base import Env
from engine.errors import (
    ClosedError,
    ConfigError,
    DiskFullError,
    OffsetOutOfRangeError,
    StoreDamagedError,
    UnknownTopicError,
)
from engine.log.format import (
    CONTROL_TOPIC_ID,
    KIND_PROGRESS,
    KIND_TOPIC,
    SEGMENT_HEADER_SIZE,
    SegmentHeader,
    pack_progress,
    pack_topic,
)
from engine.log.lookup_index.look_up import LookUp
from engine.log.native import Appender, BatchReader
from engine.log.read.cold import ColdReads, no_news
from engine.log.read.reader import Reader
from engine.log.read.start_offsets import NO_POLICY, Floors, Policy
from engine.log.segment.scan import Damage, rebuild_index
from engine.log.segment.segment import SealedSegments, Segment, create_segment, open_segment
from engine.log.segment.side_files import SideFiles
from engine.log.timer_log import TimerLog
from engine.log.types import Piece, Topic
from engine.log.upkeep.recovery import Recovered, Recovery
from engine.log.upkeep.relocation import Carrier
from engine.log.upkeep.retention import Retainer
from engine.log.view import Checkpoint, View, after_prefix
from engine.log.write.control import ControlWriter
from engine.log.write.prefill import WrittenAhead
from engine.log.write.sealer import Sealer, seal, write_checkpoint, write_directory
from engine.log.write.syncer import InlineSyncer, ThreadSyncer, sync_or_die

logger = logging.getLogger(__name__)

NAMES_CACHED_MAX = 100_000


def open_log(
    env: Env, directory: str, config: LogConfig, *,
    retention_policy: Policy = NO_POLICY, notify: Callable[[], None] = no_news,
) -> "Log":  # fmt: skip
    """Take the directory's lock, recover what is in it (creating it when missing) and return the log, ready to serve.

    Blocks for as long as one segment takes to scan. Raises LockedError, VersionError, BehindCheckpointError, CorruptionError.

    Args:
        retention_policy: topics' own retentions; without it the log's retention counts for all.
        notify: called in a thread when `take_woken()` has queues whose cold records were fetched.
    """
    config.checked()
    env.make_directory(f"{directory}/log")
    unlock = env.lock(f"{directory}/lock")
    try:
        started = env.now_ms()
        try:
            log, recovered = _recover(env, directory, config, unlock, retention_policy, notify)
        except StoreDamagedError as error:
            logger.error(
                "%s; the log builds it again, the old one is kept as %s", error, env.set_aside(f"{directory}/state")
            )
            log, recovered = _recover(env, directory, config, unlock, retention_policy, notify)
    except BaseException:
        unlock()
        raise
    logger.info(
        "log=%s position=%d epoch=%d: recovered in %.3f s, %d bytes scanned",
        log.log_id.hex(), log.end_position, log.epoch, (env.now_ms() - started) / 1000, recovered.bytes_scanned,
    )  # fmt: skip
    return log


def _recover(
    env: Env, directory: str, config: LogConfig, unlock: Callable[[], None], policy: Policy, notify: Callable[[], None]
) -> tuple["Log", Recovered]:
    store = env.open_store(f"{directory}/state", config.store_cache_bytes)
    try:
        view = View(store)
        recovered = Recovery(env, f"{directory}/log", config, view).run()
        return Log(env, f"{directory}/log", config, view, recovered, unlock, policy, notify), recovered
    except BaseException:
        store.close()
        raise


class Log:
    """Appends and reads batches. All methods belong to the loop's thread; only what says so blocks."""

    log_id: bytes
    appender: Appender
    """Native form: `engine.log.write._append.Appender`, for cimport; the twin has the same `append`."""
    damage: list[Damage]
    """What recovery found damaged and stepped over."""
    retention: Retainer
    """Deletes segments and watches the disk, as long as somebody calls its `step()`."""
    floors: Floors
    """The lowest readable offsets, by the topics' own retention."""
    for_timers: TimerLog
    """Delayed messages: their records and marks."""
    look_up: LookUp
    """Messages by id and by key."""

    def __init__(
        self, env: Env, directory: str, config: LogConfig, view: View, recovered: Recovered, unlock: Callable[[], None],
        policy: Policy, notify: Callable[[], None],
    ) -> None:  # fmt: skip
        active = recovered.active
        assert active is not None and active.index is not None
        self._env, self._directory, self._config, self._view, self._unlock = env, directory, config, view, unlock
        self.log_id = recovered.log_id
        self.damage = recovered.damage
        self._next_topic_id = recovered.next_topic_id
        self._names: dict[str, Topic] = {}
        self._batches = BatchReader(self.log_id)
        self._sealed = SealedSegments(recovered.sealed, config.sealed_open_max, self._open_sealed, SideFiles(env))
        self.appender = Appender(self, env, self.log_id, recovered.epoch, recovered.ids)
        self._ahead = WrittenAhead()
        self.cold = ColdReads(env, directory, config, notify)
        self._reader = Reader(self.log_id, self.appender, view, self._sealed, self.cold)
        self._syncer = ThreadSyncer(env) if env.has_threads() else InlineSyncer(env)
        self._sealer = Sealer(env.background())
        self._preparer = env.background()
        self._next = recovered.next
        self._refused_at = -1.0
        self._closed, self._refusal = False, ""
        self._control = ControlWriter(self.appender, env.now_ms, config.segment_bytes // 4)
        self._fresh_from = [self._next_topic_id]
        self._enter(active, active.base + active.end_at, recovered.active_last_at)
        # What recovery kept was in the file before, and _cut() has synced the file.
        self._syncer.advance(self.end_position)
        self.floors = Floors(self._reader, view, env.now_ms, policy)
        carrier = Carrier(self._control, view, self._batches, lambda *queue: self._reader.bounds(*queue)[1])
        self.retention = Retainer(self, env, directory, config, self._reader, self._sealed, view, self.floors, carrier)
        self.look_up = LookUp(
            env, directory, config, self.log_id, self._reader, self._sealed, self.appender, self.retention.disk
        )
        self.for_timers = TimerLog(
            self, self.appender, self._reader, self._control, view, env.now_ms, config.segment_bytes, recovered.fired
        )

    @property
    def epoch(self) -> int:
        """As patched into batches."""
        return self.appender.epoch

    @property
    def end_position(self) -> int:
        """Bytes below are in the page cache and readable."""
        return self.appender.end_position

    @property
    def durable_position(self) -> int:
        """Bytes below are synced."""
        return self._syncer.durable_position

    def append(self, batches: bytes | bytearray | memoryview, count: int, now_ms: int) -> list[tuple[int, int]]:
        """Append `count` batches (each starting at a multiple of 8 in `batches`) and return (code, base offset) for
        each.

        0 is stored, 2 was stored before (its id is in the topic's window; the offset is the first copy's), 100 malformed
        or no such queue, 101 larger than a segment, 102 unknown topic id, 203 no room on the disk; a refused batch does
        not stop the others, except that one with a wrong size hides what follows it. Bytes are in the page cache on
        return. Raises DiskFullError when nothing at all could be written.
        """
        return self.appender.append(batches, count, now_ms)

    def when_durable(self, position: int, callback: Callable[[], None]) -> None:
        """Call `callback()` once all bytes below `position` are synced: at once when they are, else from the loop."""
        if position > self._syncer.durable_position:
            assert self._reader.active is not None
            self._ahead.keep(self._reader.active, self.appender.end_position)
        self._syncer.when_durable(position, self.appender.end_position, callback)

    def create_topics(self, wanted: Iterable[tuple[str, int]]) -> list[Topic]:
        """Find or create each (name, queues), in order. A topic that exists with fewer queues grows, one with more
        stays as it is.

        In the page cache on return; use `when_durable(end_position, …)` before telling anybody who must not lose it.
        """
        asked = list(wanted)
        changed: dict[str, Topic] = {}
        next_id = self._next_topic_id
        for name, queues in asked:
            if not 1 <= queues <= self._config.queues_max:
                raise ConfigError([f"queues of {name}: 1..{self._config.queues_max}"])
            known = changed.get(name) or self.topic(name)
            if known is None:
                changed[name] = Topic(next_id, name, queues)
                next_id += 1
            elif known.queues < queues:
                changed[name] = Topic(known.id, name, queues)
        topics = list(changed.values())
        payloads = [pack_topic(topic.id, topic.name, topic.queues) for topic in topics]
        self._control.append(KIND_TOPIC, payloads, lambda first, end: self._take_up(topics[first:end]))
        self.bound_pending()
        return [changed.get(name) or self._known(name) for name, _ in asked]

    def _take_up(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self._next_topic_id = max(self._next_topic_id, topic.id + 1)
            self._view.put_topic(topic)
            self._names.pop(topic.name, None)
            self.appender.set_topic(topic.id, topic.queues)

    def topic(self, name: str) -> Topic | None:
        """The topic of that name, or None."""
        found = self._names.get(name)
        if found is None and (found := self._view.topic(name)) is not None:
            if len(self._names) >= NAMES_CACHED_MAX:
                self._names.clear()
            self._names[name] = found
        return found

    def topic_by_id(self, topic_id: int) -> Topic | None:
        """The topic of that id, or None."""
        return self._view.topic_by_id(topic_id)

    def topics(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[Topic]:
        """Up to `limit` topics in the byte order of their names, those with the prefix and behind `after`."""
        return self._view.topics(prefix, after, limit)

    def bounds(self, topic_id: int, queue: int) -> tuple[int, int]:
        """(first offset, end offset): what can be read is first <= offset < end. Raises UnknownTopicError."""
        self._check(topic_id, queue)
        first, end = self._reader.bounds(topic_id, queue)
        return max(first, min(self.floors.of(topic_id, queue), end)), end

    def read(
        self, topic_id: int, queue: int, offset: int, max_records: int, max_bytes: int, *, whole: bool = False
    ) -> list[Piece]:
        """Records from `offset` on, verified; the first record is given even when it is larger than `max_bytes`.
        Empty at the end. With `whole` also the rest of the batch in which `max_bytes` ends, which was read and verified anyway.

        Also empty when the records are cold, far behind the end: they are fetched, and the queue is in `take_woken()` when
        they are there. Other reads take the page cache or the disk, and then block. Raises OffsetOutOfRangeError, CorruptionError (with
        `next_offset` behind the damage) when the record at `offset` cannot be served; damage further on only ends the answer.
        """
        self._check(topic_id, queue)
        if not self.floors.of(topic_id, queue) <= offset < 1 << 63:
            raise OffsetOutOfRangeError(offset, *self.bounds(topic_id, queue))
        return self._reader.read(topic_id, queue, offset, max_records, max_bytes, whole=whole)

    def offset_at_time(self, topic_id: int, queue: int, at_ms: int) -> int:
        """Offset of the first record stored at or after `at_ms`, else the end offset. Exact while the clock does not step back."""
        self._check(topic_id, queue)
        return max(self._reader.offset_at_time(topic_id, queue, at_ms), self.floors.of(topic_id, queue))

    def watch(self, topic_id: int, queue: int) -> None:
        """Arm the queue: its next append puts it into `take_woken()` once, and disarms it."""
        self.appender.watch(topic_id, queue)

    def take_woken(self) -> list[tuple[int, int]]:
        """The armed queues that got records since the last call, as (topic id, queue).

        Their records can be read now.
        """
        woken = self.appender.take_woken()
        return woken + self.cold.take_woken() if self.cold.has_woken else woken

    def is_fetching(self, topic_id: int, queue: int) -> bool:
        """Whether a read of the queue came back empty because its records are cold and on their way."""
        return self.cold.waits(topic_id, queue)

    def put_progress(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Append PROGRESS records of (key, value); an empty value removes the key. In the page cache on return."""
        changes = [(b"p" + key, value or None) for key, value in entries]
        payloads = [pack_progress(key, value) for key, value in entries]
        self._control.append(KIND_PROGRESS, payloads, lambda first, end: self._view.put_all(changes[first:end]))
        self.bound_pending()

    def progress(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All (key, value) with the prefix, in key order."""
        for key, value in self._view.scan(b"p" + prefix, after_prefix(b"p" + prefix)):
            yield key[1:], value

    def checkpoint(self) -> None:
        """Sync, and bring the view in RocksDB up to date. Blocks."""
        self.appender.commit_staged()
        position = self.end_position
        self._submit_checkpoint()
        if not self._sealer.finish():
            raise DiskFullError("the view could not be brought up to date; the log itself is whole")
        self._syncer.advance(position)

    def request_checkpoint(self) -> None:
        """Have one written in the background, unless the thread that would do it is busy."""
        if self._sealer.is_idle:
            self._submit_checkpoint()

    def refusal(self) -> str:
        """What appends are refused with at present; empty when they are not."""
        return self._refusal

    def refuse(self, sentence: str) -> None:
        """Answer appends of messages with DiskFullError and this sentence, until the next call; accept them when it is empty."""
        self._refusal = sentence
        self.appender.set_closed(bool(sentence) or self._closed)

    def close(self) -> None:
        """Write what is staged, sync, release the lock. Blocks."""
        if self._closed:
            return
        self._closed = True
        self.appender.commit_staged()
        self.appender.set_closed(True)
        self.retention.close()
        self.cold.close()
        self.look_up.close()
        self._preparer.stop()
        self._sealer.finish()
        self._syncer.close()
        sync_or_die(self._env, self._reader.active.file)
        for segment in (*self._reader.sealing, self._reader.active, self._next):
            if segment is not None:
                segment.close()
        self._sealed.close()
        self._view.store.close()
        self._unlock()

    # What the appender asks

    def load_next_offset(self, topic_id: int, queue: int) -> int:
        """The queue's next offset as of the sealed segments; no index in memory knows the queue."""
        if topic_id >= self._fresh_from[-1]:
            return 0
        return self._view.stored_end(topic_id, queue)

    def load_queue_count(self, topic_id: int) -> int:
        """How many queues the topic has, 0 when there is none. Topic 0 is the log's own."""
        if topic_id == CONTROL_TOPIC_ID or topic_id >= self._next_topic_id:
            return 0
        topic = self._view.topic_by_id(topic_id)
        return topic.queues if topic else 0

    def check_open(self, trusted: bool) -> None:
        """Raise for an append that may not be. What keeps the log's own books may be for as long as it is open."""
        if self._closed:
            raise ClosedError("the log is closed")
        if not trusted:
            raise DiskFullError(self._refusal)

    def roll(self) -> bool:
        """Go on in the next segment, which usually is ready. False when the disk has no room for one."""
        following = self._take_next()
        if following is None:
            return False
        full = self._reader.active
        full.end_at = self.appender.end_position - full.base
        last_at = self.appender.last_at
        assert full.index is not None
        self._fresh_from.insert(0, self._next_topic_id)
        self.appender.older.insert(0, full.index)
        self._reader.sealing.append(full)
        following.open_index(full.index.used)
        self._enter(following, following.base + SEGMENT_HEADER_SIZE, 0)
        self._submit_seal(full, last_at)
        return True

    # Segments

    def _enter(self, segment: Segment, position: int, last_at: int) -> None:
        assert segment.index is not None
        self.appender.set_segment(segment.file, segment.index, segment.next_base, position, last_at)
        self._reader.active = segment
        self._syncer.switch(segment.file, position)
        if self._next is None:
            self._preparer.submit(self._prepare)

    def _next_header(self) -> SegmentHeader:
        active = self._reader.active
        return SegmentHeader(
            self.log_id, active.next_base, self.appender.epoch, self._config.segment_bytes, self._env.now_ms()
        )

    def _prepare(self) -> None:
        """Make the next segment ahead of its use, in the background. Without room for it the roll tries again."""
        try:
            self._next = create_segment(self._env, self._directory, self._next_header())
        except DiskFullError as error:
            logger.warning("%s: appends will be refused when the current segment is full", error)

    def _take_next(self) -> Segment | None:
        """The prepared segment; made here and now, which blocks, when it is not ready."""
        if self._next is None:
            self._preparer.drain()
        if self._next is None:
            if self._env.now_ms() == self._refused_at:
                return None
            try:
                self._next = create_segment(self._env, self._directory, self._next_header())
            except DiskFullError:
                # Once a millisecond: every batch of a frame would try otherwise.
                self._refused_at = self._env.now_ms()
                return None
        following, self._next = self._next, None
        return following

    def _open_sealed(self, base: int) -> Segment:
        header = self._reader.active.header
        size = (
            min((other for other in tuple(self._sealed.bases) if other > base), default=self._reader.active.base) - base
        )
        fallback = SegmentHeader(self.log_id, base, self.epoch, size, header.created_ms)
        segment = open_segment(self._env, self._directory, base, fallback)
        rebuild_index(self._env, self._batches, segment)
        return segment

    # The view

    def _submit_seal(self, segment: Segment, last_at: int) -> None:
        frozen = self._view.freeze()
        checkpoint = Checkpoint(
            self.log_id, segment.next_base, segment.base + segment.end_at, self._next_topic_id, self.epoch
        )

        def job() -> None:
            seal(self._env, segment, last_at)
            write_directory(self._view, segment)
            write_checkpoint(self._view, frozen, checkpoint)
            self._forget(segment)

        self._sealer.submit(job)

    def _submit_checkpoint(self) -> None:
        active, position = self._reader.active, self.end_position
        frozen = self._view.freeze()
        checkpoint = Checkpoint(self.log_id, active.base, position, self._next_topic_id, self.epoch)

        def job() -> None:
            # Full segments before this one were synced by their own jobs, which came first.
            sync_or_die(self._env, active.file)
            write_checkpoint(self._view, frozen, checkpoint)

        self._sealer.submit(job)

    def bound_pending(self) -> None:
        """Have a checkpoint written when much has changed since the last one."""
        if self._view.pending_count > self._config.pending_max:
            self._submit_checkpoint()

    def _forget(self, segment: Segment) -> None:
        """In the sealing thread: the segment's entries leave memory, its counters stay while there is room for them.

        Lists that the loop reads change by one step each, at the end that the loop does not touch: it only inserts at
        the front.
        """
        index, older = segment.index, self.appender.older
        assert index is not None
        back = next(back for back in range(1, len(older) + 1) if older[-back] is index)
        older[-back] = index.counters()
        self._sealed.add(segment)
        self._reader.sealing.remove(segment)
        segment.index = None
        while (
            older and len(self._reader.sealing) < len(older) and sum(o.used for o in older) > self._config.counters_max
        ):
            self._fresh_from.pop()
            older.pop()

    # Small things

    def _check(self, topic_id: int, queue: int) -> None:
        if not 0 <= queue < self.appender.queue_count(topic_id):
            raise UnknownTopicError(f"topic={topic_id} queue={queue}: unknown")

    def _known(self, name: str) -> Topic:
        found = self.topic(name)
        assert found is not None
        return found
