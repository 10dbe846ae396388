"""The appender in pure Python: the reference for _append.pyx, with the same answers, errors and bytes."""

import errno
import os
from typing import Protocol

from google_crc32c import extend, value

from engine.env.base import Env, File
from engine.errors import DiskFullError, LogError, NotStoredError, PartlyWrittenError
from engine.link.claim import CLAIM_QUEUE
from engine.log.format import (
    APPENDED,
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    CODE_CLAIMED,
    CODE_DUPLICATE,
    CODE_INVALID,
    CODE_NO_ROOM,
    CODE_OK,
    CODE_TOO_LARGE,
    CODE_UNKNOWN_TOPIC,
    FLAG_CHECK_IDS,
    FLAG_COPIED,
    KIND_FIRED,
    KIND_MESSAGES,
    SEGMENT_HEADER_SIZE,
    count_copied,
    count_records,
    padded,
)
from engine.log.segment.id_time import IdTime
from engine.log.segment.ids import IdWindow, expiry_s, shown_id
from engine.log.segment.index import SegmentIndex
from engine.log.write.known_queues import KnownQueues, NextOffsetSource, QueueCountSource

STAGING_SIZE = 1 << 20


class Roller(Protocol):
    """Calls `set_segment` with the next segment; returns False when the disk has no room for one."""

    def roll(self, appender: "Appender") -> bool: ...


class Appender(KnownQueues):
    """Owns the end of the log. See _append.pyx for what the methods promise.

    Args:
        ids: window of ids that batches with the flag "check ids" are checked against.
        id_time: the time by which the window forgets. Asked at most once per append, and only for such batches.

    Attributes:
        stored_ms_min: batches are stamped with this time while the caller's is before it.
    """

    def __init__(
        self,
        env: Env,
        log_id: bytes,
        epoch: int,
        ids: IdWindow,
        id_time: IdTime,
        offsets: NextOffsetSource,
        topics: QueueCountSource,
        roller: Roller,
    ) -> None:
        super().__init__(offsets, topics)
        self._env, self._roller = env, roller
        self.ids, self.id_time = ids, id_time
        self._id_now_ms: int | None = None
        self.stored_ms_min = 0
        self._seed = value(log_id)
        self.epoch = epoch
        self._staged: list[bytes] = []
        self._staged_size = 0
        self._undo: list[tuple[int, int]] = []
        self._watches: set[tuple[int, int]] = set()
        self._woken: list[tuple[int, int]] = []
        self._woken_ready = 0
        self._part_written = self._owes = self._lost = False
        self.set_refusal("", LogError, False)
        self.client_batches = 0
        """Client batches appended so far (control batches excluded)."""

    def set_segment(
        self, file: File, index: SegmentIndex, segment_end: int, position: int, last_at: int, last_crc: int
    ) -> None:
        """Write to this segment from `position` on. Nothing may be staged."""
        assert not self._staged
        self._file = file
        self.index = index
        self.segment_base = index.base
        self._segment_end = segment_end
        self._is_ended = False
        self._stage_position = self.end_position = position
        self.last_at = self._staged_last_at = last_at
        self.last_crc = self._staged_last_crc = last_crc

    def end_segment(self) -> None:
        """Take no further batch in this segment: the next one rolls."""
        self._is_ended = True

    def append(
        self,
        batches: bytes | bytearray | memoryview,
        count: int,
        now_ms: int,
        trusted: bool = False,
        staged: bool = False,
    ) -> list[tuple[int, int]]:
        """Append and return [(code, base offset)]."""
        results = self.append_results(batches, count, now_ms, trusted, staged)
        return [(code, offset) for code, _, offset in APPENDED.iter_unpack(results)]

    def append_results(
        self,
        batches: bytes | bytearray | memoryview,
        count: int,
        now_ms: int,
        trusted: bool = False,
        staged: bool = False,
    ) -> bytes:
        """As `append`, with the results in the link's encoding: one `format.APPENDED` per batch."""
        if self._refusal and (self._refuses_all or not trusted):
            raise self._refused_as(self._refusal)
        if not trusted:
            self.client_batches += count
        if not self._owes:
            self._part_written = False
        self._owes = self._owes or staged
        try:
            results = self._stage(bytes(batches), count, now_ms, trusted)
        except Exception as error:
            self._give_up(error)
            raise
        if not staged:
            self.flush()
        return results

    def _give_up(self, error: Exception) -> None:
        """Take back what is staged and raise: after an error, no batch of the caller may be written any more."""
        self._roll_back()
        if isinstance(error, (DiskFullError, PartlyWrittenError)):
            raise error
        kind = PartlyWrittenError if self._part_written else NotStoredError
        self._part_written = False
        self._lost = self._owes
        raise kind(f"{self._file.path}: append at {self.end_position}: {error!r}") from error

    def _stage(self, data: bytes, count: int, now_ms: int, trusted: bool) -> bytes:
        results: list[bytes] = []
        self._id_now_ms = None
        now_ms = max(now_ms, self.stored_ms_min)
        at = 0
        for _ in range(count):
            size = int.from_bytes(data[at + 4 : at + 8], "little") if at + BATCH_HEADER_SIZE <= len(data) else 0
            if size < BATCH_HEADER_SIZE or at + size > len(data):
                # Its end is unknown, and so is the start of every following batch.
                results += [APPENDED.pack(CODE_INVALID, 0, 0)] * (count - len(results))
                break
            results.append(APPENDED.pack(*self._stage_batch(data[at : at + size], trusted, now_ms)))
            at += padded(size)
        return b"".join(results)

    def commit_staged(self) -> None:
        """Write the staged batches. Raises for the caller that staged them."""
        self._owes = False
        self.flush()
        self._part_written = False
        if self._lost:
            self._lost = False
            raise PartlyWrittenError(f"{self._file.path}: an earlier write of this turn was refused")

    def set_refusal(self, sentence: str, kind: type[LogError], refuses_all: bool) -> None:
        """Raise an error of that kind in every append that is not trusted, or in all; an empty sentence ends it."""
        self._refusal, self._refused_as, self._refuses_all = sentence, kind, refuses_all

    def watch(self, topic_id: int, queue: int) -> None:
        """Arm the queue."""
        self._watches.add((topic_id, queue))

    def unwatch(self, topic_id: int, queue: int) -> None:
        """Disarm the queue; one that was not armed is no error."""
        self._watches.discard((topic_id, queue))

    def take_woken(self) -> list[tuple[int, int]]:
        """[(topic id, queue)] of armed queues whose records have become readable."""
        found = self._woken[: self._woken_ready]
        del self._woken[: self._woken_ready]
        self._woken_ready = 0
        return found

    def _check_batch(self, batch: bytes, trusted: bool) -> int:
        _, _, magic, kind, flags, _, topic_id, queue, count, reserved, _, _ = BATCH_HEADER.unpack_from(batch)
        if magic != BATCH_MAGIC or count == 0:
            return CODE_INVALID
        if flags & ~FLAG_CHECK_IDS:
            # Copied records come by the engine's own hands: it has compared their source with the queue's.
            is_copied = trusted and flags == FLAG_COPIED and kind == KIND_MESSAGES and reserved
            return CODE_OK if is_copied and count_copied(batch) == count else CODE_INVALID
        if count_records(batch) != count:
            return CODE_INVALID
        # `reserved` is the id window of such a batch, and 0 in all others.
        if (count != 1 or kind not in (KIND_MESSAGES, KIND_FIRED) or not reserved) if flags else reserved:
            return CODE_INVALID
        if trusted:
            return CODE_OK
        if kind:
            return CODE_INVALID
        try:
            queues = self.queue_count(topic_id)
        except (OSError, LogError) as error:
            return self.refuse_unknown(topic_id, error)
        if not queues:
            return CODE_UNKNOWN_TOPIC
        return CODE_OK if queue < queues else CODE_INVALID

    def _stage_batch(self, batch: bytes, trusted: bool, now_ms: int) -> tuple[int, int, int]:
        """(code, queue of a duplicate's first copy or of a claim, base offset)."""
        code = self._check_batch(batch, trusted)
        if code:
            return code, 0, 0
        hashed = b""
        if batch[11] & FLAG_CHECK_IDS:
            shown = shown_id(batch[BATCH_HEADER_SIZE:])
            if shown is None:
                return CODE_INVALID, 0, 0
            hashed = self.ids.hash(int.from_bytes(batch[16:20], "little"), shown)
            if self._id_now_ms is None:
                self._id_now_ms = self.id_time.now_ms()
            first = self.ids.find(hashed, self._id_now_ms // 1000)
            # A claim is no copy for what the engine itself stores, and for what it was made for.
            own = CLAIM_QUEUE | BATCH_HEADER.unpack_from(batch)[7]
            if first is not None and not ((trusted and first[0] & CLAIM_QUEUE) or first[0] == own):
                self.ids.hits += 1
                code = CODE_CLAIMED if first[0] & CLAIM_QUEUE else CODE_DUPLICATE
                return code, first[0] & ~CLAIM_QUEUE, first[1]
        code = self._make_room(padded(len(batch))) or self._claim(batch)
        return (code, 0, 0) if code else (CODE_OK, 0, self._take_batch(batch, hashed, now_ms))

    def _claim(self, batch: bytes) -> int:
        """Make the queue known to the active index. Returns the code that refuses the batch, or 0."""
        topic_id, queue = BATCH_HEADER.unpack_from(batch)[6:8]
        if self.index.next_offset(topic_id, queue) is None:
            try:
                self.index.claim(topic_id, queue, self.free_offset(topic_id, queue))
            except (OSError, LogError) as error:
                return self.refuse_unknown(topic_id, error)
        return CODE_OK

    def _make_room(self, room: int) -> int:
        """Make room for a batch in the segment and the staging area; returns the code that refuses it, or 0."""
        if room > self._segment_end - self.segment_base - SEGMENT_HEADER_SIZE:
            return CODE_TOO_LARGE
        if self._stage_position + room > self._segment_end or self._is_ended:
            self.flush()
            if not self._roller.roll(self):
                return CODE_NO_ROOM
            if room > self._segment_end - self.segment_base - SEGMENT_HEADER_SIZE:
                return CODE_TOO_LARGE
        if self._staged_size + room > STAGING_SIZE:
            self.flush()
        return CODE_OK

    def _take_batch(self, batch: bytes, hashed: bytes, now_ms: int) -> int:
        """Stage the batch at its queue's next offset, which is returned."""
        room = padded(len(batch))
        _, size, magic, kind, flags, _, topic_id, queue, count, reserved, _, _ = BATCH_HEADER.unpack_from(batch)
        base_offset = self.index.next_offset(topic_id, queue)
        assert base_offset is not None
        fields = (size, magic, kind, flags, self.epoch, topic_id, queue, count, reserved, base_offset, now_ms)
        covered = BATCH_HEADER.pack(0, *fields)[4:] + batch[BATCH_HEADER_SIZE:]
        crc = extend(extend(self._seed, self._stage_position.to_bytes(8, "little")), covered)
        self._staged_last_crc = crc
        self._staged.append(crc.to_bytes(4, "little") + covered + bytes(room - size))
        self._staged_size += room
        self._staged_last_at = self._stage_position - self.segment_base
        self.index.add_entry(topic_id, queue, base_offset, self._staged_last_at, size, count, now_ms)
        self._undo.append((topic_id, queue))
        if flags & FLAG_CHECK_IDS:
            self.index.checked += 1
            assert self._id_now_ms is not None
            self.ids.add(hashed, base_offset, queue, expiry_s(self._id_now_ms, reserved), self._id_now_ms // 1000)
        self._stage_position += room
        if (topic_id, queue) in self._watches:
            self._watches.discard((topic_id, queue))
            self._woken.append((topic_id, queue))
        return base_offset

    def flush(self) -> None:
        """Write the staged batches, also those of others. On return they are in the page cache and readable.

        Who has staged hears of a refusal at the commit, also when another one met it here.
        """
        if not self._staged:
            return
        try:
            self._write(b"".join(self._staged))
        except OSError as error:
            self._roll_back()
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                kind = PartlyWrittenError if self._part_written else DiskFullError
                self._part_written = False
                # A later write of this turn met the full disk; callers that staged before it are told at the commit.
                self._lost = self._owes
                raise kind(f"{self._file.path}: {os.strerror(error.errno)}") from error
            self._env.die(f"{self._file.path}: write at {self.end_position} failed: {error}")
        self._staged.clear()
        self._staged_size = 0
        self._undo.clear()
        self.ids.commit()
        self.end_position = self._stage_position
        self.last_at, self.last_crc = self._staged_last_at, self._staged_last_crc
        self._woken_ready = len(self._woken)
        self._part_written = True

    def _write(self, data: bytes) -> None:
        """Write all parts, or none and raise OSError.

        A write that fails half-way ends the process, since the log's end is unknown then.
        """
        view = memoryview(data)
        start = at = self.end_position - self.segment_base
        while view.nbytes:
            try:
                taken = self._file.write_at(view, at)
            except OSError as error:
                if at == start:
                    raise
                self._env.die(f"{self._file.path}: write at {self.segment_base + at} failed half-way: {error}")
            view = view[taken:]
            at += taken

    def _roll_back(self) -> None:
        while self._undo:
            self.index.take_back(*self._undo.pop())
        self.ids.take_back()
        self._stage_position = self.end_position
        self._staged_last_at, self._staged_last_crc = self.last_at, self.last_crc
        self._staged.clear()
        self._staged_size = 0
        self._woken_ready = len(self._woken)
