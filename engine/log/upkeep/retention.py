"""Deleting segments: the oldest first, one at a time and never two at once, when they are too old or room is needed.

A segment goes in this order: what it alone holds is appended again and synced; it leaves the set that readers use; its file, its index and
its keys in the view are removed in a thread. A crash in between leaves a file that is deleted again, an index without its segment, which
the next start removes, or keys of a segment that is not there, which readers pass over.
"""

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Protocol

from engine.config import LogConfig
from engine.env.base import Env
from engine.errors import CorruptionError, DiskFullError
from engine.log.disk import DiskWatch, Level
from engine.log.format import BATCH_HEADER, BATCH_HEADER_SIZE, CONTROL_TOPIC_ID, INDEX_HEADER
from engine.log.read.reader import Reader
from engine.log.read.start_offsets import Floors
from engine.log.segment.index_file import index_path
from engine.log.segment.segment import SealedSegments, Segment
from engine.log.segment.side_files import SIDE_SUFFIXES, SUFFIX, side_files
from engine.log.upkeep.relocation import Carrier
from engine.log.view import View
from engine.log.write.sealer import CHUNK

logger = logging.getLogger(__name__)

BUSY_MS = 5
"""Between two steps of one deletion."""

ASKED = 50
"""Queues whose topics are asked for their retention in one step: below a millisecond."""

CHECK_MS = 1000
NEVER = 1 << 62


class Host(Protocol):
    """The log, as far as deletion needs it."""

    @property
    def end_position(self) -> int: ...
    def when_durable(self, position: int, callback: Callable[[], None]) -> None: ...
    def request_checkpoint(self) -> None: ...
    def refuse(self, sentence: str) -> None: ...


class Pending(Protocol):
    """Delayed messages, which outlive the segment that they were stored in."""

    def relocate(self, base: int) -> Iterator[None]: ...
    def forget(self, base: int) -> None: ...


class Retainer:
    """Call `step()` from the loop, again after as many milliseconds as it says. It never blocks for longer than a few milliseconds."""

    def __init__(
        self, host: Host, env: Env, directory: str, config: LogConfig,
        reader: Reader, sealed: SealedSegments, view: View, floors: Floors, carrier: Carrier,
    ) -> None:  # fmt: skip
        self._host, self._env, self._directory, self._config = host, env, directory, config
        self._reader, self._sealed, self._view, self._floors, self._carrier = reader, sealed, view, floors, carrier
        self.disk = DiskWatch(env, directory, config)
        self.timers: Pending | None = None
        """Who carries on what is still pending in a segment that is about to go."""
        self.deleted_segments = self.deleted_bytes = self.early_segments = 0
        self._background = env.background()
        self._side, bases = sealed.side, sorted(sealed.bases)
        self._round: Iterator[None] | None = None
        self._waits = False
        self._next_ms = self._checked_ms = 0
        self._earliest = (-1, 0)
        self._known = (-1, -1, 0, False)
        """Of the oldest segment: base, generation of the policy, time of its newest batch, longest retention of what is in it."""
        self._remove_orphans()
        self._background.submit(lambda: self._side.weigh_all(directory, bases))

    @property
    def oldest_base(self) -> int:
        """Position of the first byte that is still there."""
        first = next(iter(self._reader.sealing), self._reader.active).base
        return min(self._sealed.bases, default=first)

    @property
    def log_bytes(self) -> int:
        """Size of all segment files. Positions are dense over files, and only the oldest go."""
        return self._reader.active.next_base - self.oldest_base

    @property
    def side_bytes(self) -> int:
        """Size of what lies beside them."""
        return self._side.size_bytes

    @property
    def segments(self) -> int:
        """Segment files, the one made ahead not counted."""
        return len(self._sealed.bases) + len(self._reader.sealing) + 1

    @property
    def earliest_ms(self) -> int:
        """When the oldest segment was made; what is in it is hardly older."""
        base = self.oldest_base
        if self._earliest[0] != base:
            segment = self._sealed.get(base) or next(iter(self._reader.sealing), self._reader.active)
            self._earliest = (base, segment.header.created_ms)
        return self._earliest[1]

    def step(self) -> int:
        """Look at the disk and go on with what is to be done; returns in how many milliseconds to call again."""
        now_ms = self._env.now_ms()
        if not 0 <= now_ms - self._checked_ms < CHECK_MS:
            self._checked_ms = now_ms
            self._host.refuse(self.disk.sentence if self.disk.check() >= Level.REFUSE else "")
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
        self._background.stop()

    def _delete_oldest(self, now_ms: int) -> Generator[None, None, None]:
        """One round: choose, carry, sync, remove. Yields where the loop may go on."""
        base = min(self._sealed.bases, default=None)
        if base is None:
            return
        early = self._needs_room()
        if not early and not (yield from self._is_expired(base, now_ms)):
            return
        if base >= self._view.replay_base:
            # A restart would miss it: the checkpoint there is says that replay begins here.
            self._host.request_checkpoint()
            return
        self._next_ms = now_ms + self._config.delete_interval_ms
        segment = self._sealed.get(base)
        assert segment is not None
        if self.timers is not None:
            try:
                yield from self.timers.relocate(base)
            except DiskFullError as error:
                logger.error("file=%s: stays, for delayed messages in it cannot be carried on: %s", segment.path, error)
                return
        yield from self._carry(segment)
        self._waits = True
        self._host.when_durable(self._host.end_position, self._synced)
        while self._waits:
            yield
        self._remove(segment, early)

    def _needs_room(self) -> str:
        """Why the oldest segment has to go whatever its age; empty when it has not."""
        if self.disk.level >= Level.DELETE:
            return self.disk.sentence
        if self._config.log_bytes_max and self._config.log_bytes_max < self.log_bytes + self.side_bytes:
            words = f"the log has {self.log_bytes >> 20} MiB and {self.side_bytes >> 20} beside it"
            return f"{words}, its limit is {self._config.log_bytes_max >> 20}"
        return ""

    def _is_expired(self, base: int, now_ms: int) -> Generator[None, None, bool]:
        """Whether its newest batch is older than the retention of every topic in it.

        One topic that keeps it is enough, and is remembered until then: a segment of a million topics is walked whole once, when it goes.
        """
        policy = self._floors.policy
        if not policy.is_known:
            return False
        if self._known[:2] != (base, policy.generation) or (self._known[2] < now_ms and not self._known[3]):
            generation = policy.generation
            segment = self._sealed.get(base)
            assert segment is not None
            newest = newest_ms(self._env, segment)
            kept_ms = yield from self._kept_ms(segment, now_ms - newest)
            self._known = (
                base,
                generation,
                newest + kept_ms,
                kept_ms < now_ms - newest,
            )  # or some may not have been asked
        return self._known[2] < now_ms

    def _kept_ms(self, segment: Segment, age_ms: int) -> Generator[None, None, int]:
        """The longest retention of its topics, or of those up to the first that keeps it at this age."""
        default_ms = self._config.retention_ms or NEVER
        longest_ms, last = 0, CONTROL_TOPIC_ID
        assert segment.sealed is not None
        for start in range(0, segment.sealed.directory_count, ASKED):
            for topic_id, *_ in segment.sealed.queues(start, ASKED):
                if topic_id != last:
                    last = topic_id
                    longest_ms = max(longest_ms, self._floors.retention(topic_id).age_ms or default_ms)
            if longest_ms >= age_ms:
                return longest_ms
            yield
        return longest_ms or default_ms

    def _carry(self, segment: Segment) -> Iterator[None]:
        try:
            yield from self._carrier.carry(segment)
        except DiskFullError as error:
            # Going on frees the room that is missing. RocksDB has it all; only without that folder something would be lost.
            logger.error("file=%s: goes although not all could be carried on in the log: %s", segment.path, error)

    def _synced(self) -> None:
        self._waits = False

    def _remove(self, segment: Segment, early: str) -> None:
        self._sealed.remove(segment.base)
        if self.timers is not None:
            self.timers.forget(segment.base)
        self.deleted_segments += 1
        self.deleted_bytes += segment.header.size
        if early:
            self.early_segments += 1
            logger.warning("file=%s: deleted before its time: %s", segment.path, early)
        else:
            logger.info("file=%s: deleted, everything in it is past its retention", segment.path)
        self._background.submit(lambda: self._unlink(segment))

    def _unlink(self, segment: Segment) -> None:
        """In the thread. The index stays mapped for as long as its directory is needed."""
        try:
            self._env.unlink(segment.path)
            for path in side_files(segment.path):
                self._env.unlink(path)
                self._side.weigh(path)
            self._env.sync_directory(self._directory)
            self._forget_queues(segment)
        except OSError as error:
            logger.error("file=%s: not deleted entirely; the next start tries again: %s", segment.path, error)

    def _forget_queues(self, segment: Segment) -> None:
        sealed = segment.sealed
        assert sealed is not None
        for start in range(0, sealed.directory_count, CHUNK):
            gone = [
                key
                for topic_id, queue, first_offset, _ in sealed.queues(start, CHUNK)
                for key in self._view.keys_up_to(topic_id, queue, first_offset)
            ]
            if gone:
                self._view.store.write([], gone)

    def _remove_orphans(self) -> None:
        names = self._env.list(self._directory)
        for name in names:
            if name.endswith(SIDE_SUFFIXES) and name.rpartition(".")[0] + SUFFIX not in names:
                with suppress(OSError):
                    self._env.unlink(f"{self._directory}/{name}")


def newest_ms(env: Env, segment: Segment) -> int:
    """When the segment's last batch was stored; when the segment was made, if it has none or that cannot be told."""
    created_ms = segment.header.created_ms
    try:
        file = env.open(index_path(segment))
        try:
            last_at = INDEX_HEADER.unpack(file.read_at(INDEX_HEADER.size, 0))[7]
        finally:
            file.close()
        head = segment.file.read_at(BATCH_HEADER_SIZE, last_at) if last_at else b""
        return max(created_ms, BATCH_HEADER.unpack(head)[11]) if last_at else created_ms
    except (OSError, CorruptionError) as error:
        logger.warning("file=%s: its age is taken from its header: %s", segment.path, error)
        return created_ms
