"""Recovery: from the files of a directory to a state that can serve, by scanning, cutting and reporting.

Only the segments from the checkpoint on are scanned, so the time does not depend on the size of the log or the number
of topics. Without a store the index files of all segments rebuild it, and segments without a sound index file are
scanned.
"""

import logging
from functools import partial
from itertools import pairwise

from engine.config import LogConfig
from engine.env.base import Env
from engine.errors import BehindCheckpointError, CorruptionError
from engine.log.format import (
    CONTROL_TOPIC_ID,
    END_UNKNOWN,
    KIND_COUNTERS,
    KIND_TIMER,
    KIND_TOPIC,
    SEGMENT_HEADER_SIZE,
    SegmentHeader,
)
from engine.log.segment.id_time import IdTime
from engine.log.segment.index_file import index_in_memory, load_index
from engine.log.segment.native import BatchReader, IdWindow, SealedIndex, SegmentIndex
from engine.log.segment.patience import Patience
from engine.log.segment.recovery_scan import RecoveryScan, is_empty, missing_end, raise_first, report, scan_segment
from engine.log.segment.segment import Segment, create_segment, open_segment, read_or_nothing
from engine.log.segment.side_files import INDEX_SUFFIX, segment_bases, side_files
from engine.log.types import Topic
from engine.log.upkeep.copied_search import find_copied, take_scanned
from engine.log.upkeep.ending import cut, is_fresh, leave, note_previous_end, take_again, take_sealed
from engine.log.upkeep.expiry import newest_ms
from engine.log.upkeep.id_restore import restore_window
from engine.log.upkeep.log_time import believed_at_start
from engine.log.upkeep.recovered import Recovered
from engine.log.view import CHECKPOINT_KEY, Checkpoint, View
from engine.log.write.failed_sync import is_marked, keep_spare, unmark, write_again
from engine.log.write.replay import REPLAYED, replay
from engine.log.write.sealer import correct_directory, ensure_index, write_directory

logger = logging.getLogger(__name__)
OFFSET_MAX = 0xFFFFFFFFFFFFFFFF
UNSEALED_MAX = 32
"""Newest segments that may not have been synced when there is no checkpoint: reading the whole log would take too long."""
COMPLETED_MAX = 8
"""Full segments without an index file that one start scans; others are scanned when they are read."""


class Recovery:
    """One recovery of one directory.

    Args:
        scans_all: scan full segments from the checkpoint on in any case: an index that a start has made hides damage.
    """

    def __init__(self, env: Env, directory: str, config: LogConfig, view: View, *, scans_all: bool = False) -> None:
        self._env = env
        self._directory = directory
        self._config = config
        self._view = view
        self._patience = Patience(env, config.start_wait_ms)
        self._scanned: set[int] = set()
        self._by_index: list[int] = []
        self._scans_all = scans_all
        self._is_unsynced = is_marked(env, directory)
        self._covered_to = 0  # all timers that fired below have their tombstone
        self._batches: BatchReader
        self._state: Recovered
        self._tail = RecoveryScan()

    def run(self) -> Recovered:
        """Recover, and create the first segment of an empty directory. Blocks. Raises as open_log does."""
        found = self._find()
        keep_spare(self._env, self._directory)
        found.ids = IdWindow(found.log_id, self._config.id_window_bytes_max)
        clock = self._env.clock
        found.newest_ms = self._newest_ms(found)
        found.time = believed_at_start(clock, self._view, found.newest_ms)
        found.id_time = IdTime(clock.monotonic_ms, found.time.now_ms())
        now_ms = found.id_time.now_ms()
        restore_window(
            self._env, self._directory, found.sealed, found.ids, now_ms, partial(self._open_sealed, found),
            partial(correct_directory, self._view), self._patience.wait,
        )  # fmt: skip
        found.ids.load(found.active_ids, now_ms)
        return found

    def _newest_ms(self, found: Recovered) -> int:
        """When the log's last batch was stored; without one when the active segment was made, a time that may be ahead."""
        assert found.active is not None
        if self._tail.last.at:
            return self._tail.last.stored_ms
        if not found.sealed:
            return found.active.header.created_ms
        last = self._open_sealed(found, found.sealed[-1])
        try:
            return newest_ms(self._env, last) or found.active.header.created_ms
        finally:
            last.close()

    def _open_sealed(self, found: Recovered, base: int) -> Segment:
        assert found.active is not None
        return self._open(base, [*found.sealed, found.active.base], found.active.header)

    def _find(self) -> Recovered:
        bases = self._bases()
        value = self._view.store.get(CHECKPOINT_KEY)
        checkpoint = Checkpoint.parse(value) if value else None
        if not bases:
            return self._create(checkpoint)
        header = self._any_header(bases, checkpoint)
        self._state = Recovered(header.log_id, headers_lost=self._view.are_headers_lost())
        self._batches = BatchReader(header.log_id)
        if checkpoint is not None and checkpoint.log_id != header.log_id:
            raise BehindCheckpointError(
                f"{self._directory}: the folder state belongs to another log; remove it, and the next start rebuilds it"
            )
        if checkpoint is not None:
            self._state.synced = checkpoint.durable_position
            self._take_checkpoint(checkpoint, bases)
        self._view.forget_unread(set(self._view.unread_segments()).difference(bases))
        for base in set(self._view.segments_with_ended_timers()).difference(bases):
            self._view.forget_timers(base)
        empty = self._replay(bases, checkpoint, header)
        if checkpoint is not None:
            self._compare(checkpoint)
            self._complete([base for base in bases if base < checkpoint.segment_base])
        self._make_ready(empty)
        if self._is_unsynced:
            unmark(self._env, self._directory)
        return self._state

    def _bases(self) -> list[int]:
        names = self._env.list(self._directory)
        for name in names:
            if name.endswith(".tmp"):
                self._env.unlink(f"{self._directory}/{name}")
        bases = segment_bases(names)
        self._without_index = {base for base in bases if f"{base:020d}{INDEX_SUFFIX}" not in names}
        return bases

    def _complete(self, bases: list[int]) -> None:
        """Index segments before the checkpoint that have no index file: earlier starts could read them only in part.

        The view knows such a segment as far as it was read, so it is told again. One that cannot be read now stays.
        """
        for base in [base for base in bases if base in self._without_index][-COMPLETED_MAX:]:
            segment = self._open_sealed(self._state, base)
            try:
                ensure_index(
                    self._env, self._batches, segment, accept_unread=False,
                    on_whole=partial(correct_directory, self._view),
                )  # fmt: skip
            except OSError as error:
                self._state.partial.add(base)
                logger.error("file=%s: it still has no index: %s", segment.path, error)
            finally:
                segment.close()

    def _create(self, checkpoint: Checkpoint | None) -> Recovered:
        if checkpoint is not None:
            raise BehindCheckpointError(
                f"{self._directory}: no segment is left, but the folder state says that {checkpoint.durable_position} "
                "bytes were durable"
            )
        log_id = self._env.random_bytes(16)
        header = SegmentHeader(log_id, 0, 1, self._config.segment_bytes, self._env.now_ms())
        segment = create_segment(self._env, self._directory, header)
        segment.open_index()
        return Recovered(log_id, active=segment)

    def _any_header(self, bases: list[int], checkpoint: Checkpoint | None) -> SegmentHeader:
        """A sound header, to identify the log.

        All are read, so that a newer version is met before anything is changed.
        """
        sound = None
        for base in bases if len(bases) <= 64 else bases[-64:]:
            try:
                segment = open_segment(self._env, self._directory, base, again=self._patience.wait)
            except CorruptionError:
                continue
            segment.close()
            sound = segment.header
        if sound is not None:
            return sound
        if checkpoint is None:
            raise CorruptionError(self._directory, bases[0], SEGMENT_HEADER_SIZE, "no segment has a sound header")
        return SegmentHeader(
            checkpoint.log_id, bases[0], checkpoint.epoch, self._config.segment_bytes, self._env.now_ms()
        )

    def _take_checkpoint(self, checkpoint: Checkpoint, bases: list[int]) -> None:
        if checkpoint.segment_base not in bases:
            raise BehindCheckpointError(
                f"{self._directory}: the segment at {checkpoint.segment_base} is missing: put it back"
            )
        self._state.next_topic_id = checkpoint.next_topic_id
        self._state.epoch = checkpoint.epoch
        self._state.sealed = [base for base in bases if base < checkpoint.segment_base]

    def _open(self, base: int, bases: list[int], sample: SegmentHeader) -> Segment:
        """Open a segment; a damaged header is replaced by one made from the file's name and its neighbour."""
        above = [other for other in bases if other > base]
        size = above[0] - base if above else sample.size
        return open_segment(
            self._env, self._directory, base, SegmentHeader(sample.log_id, base, sample.epoch, size, sample.created_ms),
            again=self._patience.wait,
        )  # fmt: skip

    def _replay(self, bases: list[int], checkpoint: Checkpoint | None, sample: SegmentHeader) -> list[Segment]:
        """Replay every segment from the checkpoint on. The last one with a batch becomes active.

        Returns the empty segments after it.
        """
        first = checkpoint.segment_base if checkpoint else 0
        waiting = [self._open(base, bases, sample) for base in bases if base >= first]
        empty: list[Segment] = []
        while len(waiting) > 1 and is_empty(self._batches, waiting[-1], self._patience.wait):
            empty.insert(0, waiting.pop())
        distrusted = self._distrusted(waiting, checkpoint)
        for segment, following in pairwise(waiting):
            ends_at = following.header.previous_end if following.base == segment.next_base else END_UNKNOWN
            self._take_full(segment, ends_at, has_index=segment.base not in distrusted)
        self._state.active = waiting[-1]
        self._tail = self._scan(waiting[-1], is_tail=True)
        self._state.active_last = self._tail.last
        find_copied(
            self._view, self._batches, self._env, self._state, self._by_index,
            lambda base: self._open(base, bases, sample),
        )  # fmt: skip
        self._find_fired([base for base in bases if base < waiting[-1].base], checkpoint)
        # A checkpoint may pass these before anybody has marked them, and the start after it begins there.
        self._view.put_fired_from(min((base + at for base, at, _ in self._state.fired), default=None))
        return empty

    def _distrusted(self, waiting: list[Segment], checkpoint: Checkpoint | None) -> set[int]:
        """Bases of the segments that are scanned though they may have an index file."""
        newest = waiting if checkpoint is not None else waiting[-UNSEALED_MAX:]
        return {segment.base for segment in newest} if self._scans_all else set()

    def _find_fired(self, bases: list[int], checkpoint: Checkpoint | None) -> None:
        """Find batches of fired timers without tombstone in full segments, after all tombstones were replayed.

        Timers that fired just before a segment was full are marked in the next one, unless the process ended before. An
        index file does not tell such batches, so segments that were replayed by theirs are scanned, too, but only above
        the position up to which all are covered. The view says it as of the checkpoint, each tombstone as of its time.
        A log that never had a delayed message is not scanned.
        """
        if self._view.span_of(CONTROL_TOPIC_ID, KIND_TIMER, OFFSET_MAX) is None:
            return
        fired_from = 0
        if checkpoint is not None:
            noted = self._view.fired_from()
            fired_from = checkpoint.segment_base if noted is None else noted
        fired_from = max(fired_from, self._covered_to)
        assert self._state.active is not None
        for base, end in zip(bases, [*bases, self._state.active.base][1:], strict=True):
            if base in self._scanned or end <= fired_from:
                continue
            segment = self._open(base, bases, SegmentHeader(self._state.log_id, base, 1, self._config.segment_bytes, 0))
            found = scan_segment(self._batches, segment, is_tail=False, again=self._patience.wait).fired
            self._state.fired += [(base, at, size) for at, size in found if base + at >= fired_from]
            segment.close()

    def _make_ready(self, empty: list[Segment]) -> None:
        """Make the first change to the directory: every reason to refuse it has been checked."""
        active = self._state.active
        assert active is not None
        # Its side files, if any, are from before a crash that took back the first batch of the next segment.
        for path in side_files(active.path):
            self._env.unlink(path)
        self._state.is_full = not cut(self._env, active)
        note_previous_end(self._env, self._state)
        if empty and empty[0].base == active.next_base and is_fresh(empty[0]):
            self._state.next = empty.pop(0)
        for segment in empty:
            segment.close()
            self._env.unlink(segment.path)
        if not self._tail.records_unread_max(0):
            take_again(self._view, active)
        else:
            leave(self._env, self._directory, self._view, self._state, self._tail, self._config.segment_bytes)

    def _take_full(self, segment: Segment, ends_at: int, *, has_index: bool) -> None:
        """Replay a full segment: by its index file when that is sound, else by a scan that writes one."""
        try:
            if not has_index:
                raise CorruptionError(segment.path, 0, 0, "no start has looked yet for what a power cut has torn")
            segment.sealed = load_index(self._env, segment)
        except CorruptionError as error:
            logger.warning("file=%s: scanned, because %s", segment.path, error)
            take_sealed(
                self._env, self._view, self._state, segment, self._scan(segment, is_tail=False, ends_at=ends_at)
            )
        else:
            self._state.damage += missing_end(segment, ends_at)  # the index is of a start that has seen it
            self._apply_control(segment)
            self._spare_ids(segment.sealed)
            write_directory(self._view, segment)
            self._by_index.append(segment.base)
            self._state.sealed.append(segment.base)
        segment.close()

    def _apply_control(self, segment: Segment) -> None:
        assert segment.sealed is not None
        found = [
            (at, size, count, kind)
            for kind in REPLAYED
            for _, at, size, count, _ in segment.sealed.entries(CONTROL_TOPIC_ID, kind)
        ]
        for at, size, count, kind in sorted(found):
            batch = read_or_nothing(segment, at, size)
            while not batch and self._patience.wait():
                batch = read_or_nothing(segment, at, size)
            if self._batches.check(batch, 0, size, segment.base + at) != size:
                why = "does not verify" if batch else "cannot be read"
                self._state.damage.append(report(segment, at, size, f"a batch of {REPLAYED[kind]} {why}"))
                if kind == KIND_TOPIC:
                    self._state.next_topic_id += count  # each of its records may have been the first of an id
                elif kind == KIND_COUNTERS:
                    self._note_headers_lost()
                continue
            self._replay_batch(batch, None)

    def _scan(self, segment: Segment, *, is_tail: bool, ends_at: int = END_UNKNOWN) -> RecoveryScan:
        """Scan it, apply its control batches."""
        scan = scan_segment(
            self._batches, segment, is_tail=is_tail, ends_at=ends_at, end_before=self._end_before,
            again=self._patience.wait,
        )  # fmt: skip
        self._scanned.add(segment.base)
        if self._is_unsynced:
            write_again(self._env, segment)
        self._state.fired += [(segment.base, at, size) for at, size in scan.fired]
        for batch in scan.control:
            self._replay_batch(batch, segment.index)
        self._state.epoch = max(self._state.epoch, scan.epoch)
        self._state.bytes_scanned += segment.end_at
        self._state.damage += scan.damage
        take_scanned(self._view, self._state, segment.base, scan.copied)
        assert segment.index is not None
        raise_first(segment.index, scan, self._end_before)
        for raised in scan.raised:
            self._view.put_counter(*raised)  # the segment's index file does not name the queue
        self._state.raised += scan.raised
        if scan.headers_lost:
            self._note_headers_lost()
        self._state.next_topic_id += scan.topics_lost_max(0 if is_tail else segment.header.size - segment.end_at)
        if self._state.damage:
            self._spare_ids(index_in_memory(segment, segment.index))
        if is_tail:
            self._state.active_ids = scan.ids
        return scan

    def _note_headers_lost(self) -> None:
        if not self._state.headers_lost:
            self._view.put_headers_lost()
            self._state.headers_lost = True

    def _spare_ids(self, index: SealedIndex) -> None:
        """Give no topic an id that the segment has batches of: the record of their own topic may be lost."""
        if index.directory_count:
            ((highest, *_),) = index.queues(index.directory_count - 1, 1)  # sorted by topic id
            self._state.next_topic_id = max(self._state.next_topic_id, highest + 1)

    def _end_before(self, topic_id: int, queue: int) -> int | None:
        topic = self._view.topic_by_id(topic_id)
        return self._view.stored_end(topic_id, queue) if topic is not None and queue < topic.queues else None

    def _replay_batch(self, batch: bytes, index: SegmentIndex | None) -> None:
        """`index`: of the batch's segment, if it is scanned."""

        def take_counter(topic_id: int, queue: int, next_offset: int) -> None:
            if index is not None and index.next_offset(topic_id, queue) is not None:
                index.raise_next(topic_id, queue, next_offset)  # the view knows it for all other queues

        replay(batch, self._view, self._take_topic, take_counter, self._take_mark)

    def _take_topic(self, topic: Topic) -> None:
        self._view.put_topic(topic)
        self._state.next_topic_id = max(self._state.next_topic_id, topic.id + 1)

    def _take_mark(self, covered_to: int, base: int, addresses: bytes) -> None:
        self._covered_to = max(self._covered_to, covered_to)
        self._state.fired = [fired for fired in self._state.fired if fired[0] + fired[1] >= covered_to]

    def _compare(self, checkpoint: Checkpoint) -> None:
        active = self._state.active
        assert active is not None
        end = active.base + active.end_at
        if end < checkpoint.durable_position:
            raise BehindCheckpointError(
                f"{active.path}: the log ends at {end}, but {checkpoint.durable_position} was durable: "
                "a file was replaced by an older copy, or its end was damaged. Put the newer file back, or remove "
                "the folder state to accept the loss"
            )
