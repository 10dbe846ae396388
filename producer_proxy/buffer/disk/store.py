"""The disk buffer: a write-ahead log of entries in a directory that one process holds.

Invariants:
1. An entry can be taken only once it is synced, and in the order in which it was written.
2. A segment is deleted only when each of its entries is marked as drained, or was found damaged and reported.
3. After a failed sync nothing more is stored: the kernel has dropped the bytes, and a second sync would report a false
   success.

The answer to each error of a call is in docs/design/0025-configuration-that-is-lost.md.
"""

import errno
import fcntl
import logging
import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import gevent

from common.limited_log import LimitedLog
from producer_proxy.buffer import blocks
from producer_proxy.buffer.blocks import Block
from producer_proxy.buffer.disk.commit import GroupCommit
from producer_proxy.buffer.disk.dead import DeadEntry, DeadList
from producer_proxy.buffer.disk.segment import BufferSegment, PartlyWritten, bases, remove_orphans
from producer_proxy.buffer.disk.threads import FileWork
from producer_proxy.buffer.disk.waiting import WaitingEntries
from producer_proxy.buffer.entry import BufferEntry, EntryError, decode
from producer_proxy.buffer.errors import BufferFull, BufferInUse, BufferUnavailable, BufferUncertain
from producer_proxy.buffer.native import entries_at
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.buffer.store import BufferStore, KeptEntry

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.buffer"))

SEGMENT_BYTES = 16 << 20
READ_BYTES = 256 << 10
REST_S = 1.0
UNREADABLE_S = 60.0
"""Time for which an entry is tried again that the disk cannot read; then it is reported as damaged."""
UNREADABLE_MAX = 16
"""Unreadable entries that one call of `take` meets; each blocks for as long as the device does."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# A waiting entry is one int: its position, and in the low 48 bits the time at which it was accepted.
_TIME_BITS = 48
_TIME_MASK = (1 << _TIME_BITS) - 1


class DiskStore(BufferStore):
    """Opens the directory, with the entries that an earlier process left in it.

    Raises:
        BufferInUse: another process holds it. OSError: it cannot be made or read.
    """

    name = "disk"

    def __init__(
        self, directory: Path, limits: RoomLimits, now_ms: Callable[[], int], segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        super().__init__(limits, now_ms)
        self._directory, self._segment_bytes = directory, segment_bytes
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = hold(directory)
        self._names = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # now: later none may be free
        self._segments: list[BufferSegment] = []
        self._active: BufferSegment | None = None
        self._end = 0
        self._waiting = WaitingEntries()
        self._resting: dict[str, float] = {}  # topic -> monotonic time at which it is read again
        self._unreadable: dict[int, float] = {}  # position -> monotonic time of the first error
        self._chunk: tuple[BufferSegment | None, int, bytes] = (None, 0, b"")
        self._commit = GroupCommit(self._sync)
        self._file_work = FileWork()
        self._fault: str | None = None
        self._dead = DeadList(directory)
        remove_orphans(directory)
        for base in bases(directory):
            self._open(BufferSegment(directory, base))

    def take(self, skip: Collection[str], count_max: int, bytes_max: int) -> list[KeptEntry]:
        for _ in range(UNREADABLE_MAX):
            numbers = self._waiting.first(self._not_resting(skip), count_max)
            taken = self._take(numbers, bytes_max)
            if taken or not numbers:
                return taken
        return []

    def _take(self, numbers: list[int], bytes_max: int) -> list[KeptEntry]:
        """The entries up to the first that cannot be read."""
        positions = [number >> _TIME_BITS for number in numbers]
        taken: list[BufferEntry] = []
        left = bytes_max
        while len(taken) < len(numbers) and left > 0:
            position = positions[len(taken)]
            try:
                found, used = self._read(positions[len(taken) :], left)
            except OSError as error:
                self._rest(position, error)
                break
            if not found:
                self._report_unreadable(position)
                break
            left -= used
            if taken and left < 0:
                break
            taken += found
            if self._unreadable:
                self._unreadable.pop(position, None)
        return [KeptEntry(number, entry) for number, entry in zip(numbers, taken, strict=False)]

    def _not_resting(self, skip: Collection[str]) -> Collection[str]:
        """`skip` and the topics whose first entry could not be read a moment ago."""
        if not self._resting:
            return skip
        now_s = time.monotonic()
        self._resting = {topic: until_s for topic, until_s in self._resting.items() if until_s > now_s}
        return {*skip, *self._resting}

    def _rest(self, position: int, error: OSError) -> None:
        """Try the topic's entries again in a second; after UNREADABLE_S the entry counts as damaged."""
        now_s = time.monotonic()
        if now_s - self._unreadable.setdefault(position, now_s) >= UNREADABLE_S:
            del self._unreadable[position]
            self._report_unreadable(position)
            return
        topic, _ = self._waiting.find(position, _TIME_BITS)
        limited.error("buffer=%s topic=%s: cannot be read at %d, tried again: %s",
                      self._directory, topic, position, error)  # fmt: skip
        self._resting[topic] = now_s + REST_S

    def oldest_at_ms(self) -> int | None:
        number = self._waiting.oldest()
        return None if number is None else number & _TIME_MASK

    def fault(self) -> str | None:
        return self._fault

    def close(self) -> None:
        while not self._commit.idle:
            gevent.sleep(0.001)
        self._file_work.wait()
        for segment in self._segments:
            segment.close()
        os.close(self._names)
        os.close(self._lock)

    @property
    def undeleted(self) -> int:
        return sum(len(segment.unmarked) for segment in self._segments)

    @property
    def dead_count(self) -> int:
        return self._dead.count

    def _write(self, entries: Sequence[BufferEntry]) -> None:
        if self._fault:
            raise BufferUnavailable(self._fault)
        try:
            segment, numbers = self._append(entries)
        except OSError as error:
            sentence = f"buffer={self._directory}: cannot be written: {error.strerror}; nothing was stored"
            raise (BufferFull if error.errno in _NO_ROOM else BufferUnavailable)(sentence) from error
        except PartlyWritten as error:
            self._active = None  # nothing more is written behind such a part
            raise BufferUncertain(f"buffer={self._directory}: {error}; a part may be stored") from error
        segment.live += len(entries)
        try:
            self._commit.wait(segment, lambda: self._make_visible(entries, numbers))
        except OSError as error:
            self._fault = f"buffer={self._directory}: a sync failed ({error.strerror}); takes nothing until restarted"
            limited.error("%s", self._fault)
            raise BufferUncertain(self._fault) from error

    def _append(self, entries: Sequence[BufferEntry]) -> tuple[BufferSegment, list[int]]:
        segment = self._active
        if segment is None or segment.size >= self._segment_bytes:
            segment = BufferSegment(self._directory, self._end)
            segment.create()
            self._segments.append(segment)
            self._active = segment
        data, numbers = bytearray(), []
        for entry in entries:
            position = segment.base + segment.size + len(data)
            data += blocks.pack_block(blocks.ENTRY, position, entry.encode())
            numbers.append(position << _TIME_BITS | entry.accepted_at_ms & _TIME_MASK)
        self._end = segment.base + blocks.padded(segment.size + len(data))  # also when a part of it stays in the file
        try:
            segment.append(bytes(data))
        except OSError:
            self._end = segment.base + segment.size
            raise
        return segment, numbers

    def _make_visible(self, entries: Sequence[BufferEntry], numbers: Sequence[int]) -> None:
        for entry, number in zip(entries, numbers, strict=True):
            self._waiting.add(entry.topic, number)

    def _sync(self, segments: Collection[BufferSegment]) -> None:
        """Runs in a thread of the pool."""
        for segment in segments:
            segment.sync()
        if unnamed := [segment for segment in segments if not segment.named]:
            os.fsync(self._names)
            for segment in unnamed:
                segment.named = True

    def _delete(self, kept: Sequence[KeptEntry]) -> Sequence[KeptEntry]:
        for segment, positions in self._by_segment(sorted(each.handle >> _TIME_BITS for each in kept)):
            segment.live -= len(positions)
            segment.unmarked += [position - segment.base for position in positions]
            # Whatever fails, the entries leave the queue: a copy after a restart is better than a stuck queue.
            try:
                self._file_work.run(segment.mark_done, segment.unmarked)
                segment.unmarked = []
            except OSError as error:
                limited.error("buffer=%s: marks of drained entries cannot be written: %s", self._directory, error)
            try:
                self._delete_if_drained(segment)
            except OSError as error:
                limited.error("buffer=%s: a drained segment cannot be deleted: %s", self._directory, error)
        by_topic: dict[str, set[int]] = {}
        for each in kept:
            by_topic.setdefault(each.entry.topic, set()).add(each.handle)
        for topic, numbers in by_topic.items():
            self._waiting.remove(topic, numbers)
        return kept

    def _delete_if_drained(self, segment: BufferSegment) -> None:
        if segment.live == 0:
            self._segments.remove(segment)
            self._active = None if segment is self._active else self._active
            self._chunk = (None, 0, b"")
            self._file_work.run(segment.delete)

    def _dead_letter(self, kept: Sequence[KeptEntry], reason: str) -> None:
        buried = [DeadEntry(self.now_ms(), reason, each.entry) for each in kept]
        try:
            self._file_work.run(self._dead.append, buried)
        except OSError as error:
            raise BufferFull(f"buffer={self._directory}: the dead-letter list cannot be written: {error}") from error

    def _segment_of(self, position: int) -> BufferSegment:
        return self._segments[bisect_right(self._segments, position, key=lambda segment: segment.base) - 1]

    def _by_segment(self, positions: list[int]) -> list[tuple[BufferSegment, list[int]]]:
        """Group ascending positions by segment."""
        groups, at = [], 0
        while at < len(positions):
            segment = self._segment_of(positions[at])
            end = bisect_left(positions, segment.base + segment.size, at)
            groups.append((segment, positions[at:end]))
            at = end
        return groups

    def _read(self, positions: list[int], bytes_max: int) -> tuple[list[BufferEntry], int]:
        """Entries at the first of these positions, as many as one read of a file returns, and their size in bytes.

        No entry: the bytes of the first have changed. Reads ahead, because the drain continues with later entries.
        Raises OSError when the disk cannot read the first entry.
        """
        segment = self._segment_of(positions[0])
        held, start, data = self._chunk
        found, used = entries_at(data, start, positions, bytes_max) if held is segment else ([], 0)
        for size in (READ_BYTES, blocks.BLOCK_BYTES_MAX):
            if found:
                break
            try:
                data = self._file_work.run(segment.read, size, positions[0] - segment.base)
            except OSError:
                data = self._read_alone(segment, positions[0] - segment.base)
            self._chunk = (segment, positions[0], data)
            found, used = entries_at(data, positions[0], positions, bytes_max)
        return found, used

    def _read_alone(self, segment: BufferSegment, offset: int) -> bytes:
        """The bytes of one block, where a longer read failed: a bad sector must not cost the entries around it."""
        head = self._file_work.run(segment.read, blocks.BLOCK_HEAD.size, offset)
        return self._file_work.run(segment.read, blocks.size_of(head), offset)

    def _report_unreadable(self, position: int) -> None:
        """Report an entry whose bytes have changed. It cannot be sent; its segment is renamed to *.damaged and kept.

        The entry's key is unknown, so its ordering key stays diverted until the next start.
        """
        topic, number = self._waiting.find(position, _TIME_BITS)
        limited.error(
            "buffer=%s topic=%s: the entry at %d is damaged and cannot be drained", self._directory, topic, position
        )
        self.damaged += 1
        self._waiting.remove(topic, {number})
        segment = self._segment_of(position)
        segment.damaged = True
        segment.live -= 1
        self._delete_if_drained(segment)

    def _open(self, segment: BufferSegment) -> None:
        entries, numbers = [], []
        for found in segment.scan():
            if not isinstance(found, Block):
                self._report_gap(segment, found)
            elif found.kind == blocks.ENTRY:
                try:
                    entry = decode(found.payload)
                except EntryError as error:
                    limited.error("buffer file=%s offset=%d: %s", segment.path.name, found.offset, error)
                    self.damaged += 1
                    segment.damaged = True
                    continue
                entries.append(entry)
                numbers.append(segment.base + found.offset << _TIME_BITS | entry.accepted_at_ms & _TIME_MASK)
        self._end = max(self._end, segment.base + blocks.padded(segment.size))
        segment.live = len(entries)
        if not entries:
            segment.delete()
            return
        self._segments.append(segment)
        self._make_visible(entries, numbers)
        self.found(entries)

    def _report_gap(self, segment: BufferSegment, gap: blocks.Gap) -> None:
        if gap.torn:
            limited.warning(
                "buffer file=%s: a tail of %d bytes at %d is torn by a crash",
                segment.path.name,
                gap.size,
                gap.offset,
            )
        else:
            limited.error("buffer file=%s offset=%d: %d bytes are damaged", segment.path.name, gap.offset, gap.size)
            self.damaged += 1


def hold(directory: Path) -> int:
    """The directory's lock, as a descriptor that ends with the process. Raises BufferInUse."""
    file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise BufferInUse(f"buffer={directory}: another process holds it: stop that one") from None
    return file
