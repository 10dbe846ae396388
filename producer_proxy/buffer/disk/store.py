"""The disk buffer: a write-ahead log of entries in a directory that one process holds.

Invariants:
1. An entry can be taken only once it is synced, and in the order in which it was written.
2. A segment is deleted only when each of its entries is marked as drained, or was found damaged and reported.
3. After a failed sync nothing more is stored: the kernel has dropped the bytes, and a second sync would report a false
   success.
"""

import errno
import fcntl
import heapq
import logging
import os
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path

import gevent

from producer_proxy.buffer import blocks
from producer_proxy.buffer.blocks import Block
from producer_proxy.buffer.disk.commit import GroupCommit
from producer_proxy.buffer.disk.dead import DeadEntry, DeadList
from producer_proxy.buffer.disk.segment import BufferSegment, bases, remove_orphans
from producer_proxy.buffer.disk.threads import FileWork
from producer_proxy.buffer.entry import BufferEntry, EntryError, decode
from producer_proxy.buffer.errors import BufferFull, BufferInUse, BufferUnavailable, BufferUncertain
from producer_proxy.buffer.native import entries_at
from producer_proxy.buffer.room import RoomLimits
from producer_proxy.buffer.store import BufferStore, KeptEntry

log = logging.getLogger("penstock.producer_proxy.buffer")

SEGMENT_BYTES = 16 << 20
READ_BYTES = 256 << 10
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
        self._segments: list[BufferSegment] = []
        self._active: BufferSegment | None = None
        self._end = 0
        self._waiting: dict[str, deque[int]] = {}
        self._removed_ahead: dict[str, set[int]] = {}  # per topic: removed entries that are still in its deque
        self._chunk: tuple[BufferSegment | None, int, bytes] = (None, 0, b"")
        self._commit = GroupCommit(self._sync)
        self._file_work = FileWork()
        self._fault: str | None = None
        self._dead = DeadList(directory)
        self.dead_count = self._dead.count
        remove_orphans(directory)
        for base in bases(directory):
            self._open(BufferSegment(directory, base))

    def take(self, skip: Collection[str], count_max: int, bytes_max: int) -> list[KeptEntry]:
        ready = (self._waiting_of(topic) for topic in self._waiting if topic not in skip)
        numbers = list(islice(heapq.merge(*ready), count_max))
        positions = [number >> _TIME_BITS for number in numbers]
        taken: list[BufferEntry] = []
        left = bytes_max
        while len(taken) < len(numbers) and left > 0:
            found, used = self._read(positions[len(taken) :], left)
            if not found:
                self._report_unreadable(positions[len(taken)])
                return self.take(skip, count_max, bytes_max)
            left -= used
            if taken and left < 0:
                break
            taken += found
        return [KeptEntry(number, entry) for number, entry in zip(numbers, taken, strict=False)]

    def oldest_at_ms(self) -> int | None:
        return min((numbers[0] & _TIME_MASK for numbers in self._waiting.values()), default=None)

    def fault(self) -> str | None:
        return self._fault

    def close(self) -> None:
        while not self._commit.idle:
            gevent.sleep(0.001)
        self._file_work.wait()
        for segment in self._segments:
            segment.close()
        os.close(self._lock)

    def _write(self, entries: Sequence[BufferEntry]) -> None:
        if self._fault:
            raise BufferUnavailable(self._fault)
        try:
            segment, numbers = self._append(entries)
        except OSError as error:
            sentence = f"buffer={self._directory}: cannot be written: {error.strerror}; nothing was stored"
            raise (BufferFull if error.errno in _NO_ROOM else BufferUnavailable)(sentence) from error
        segment.live += len(entries)
        try:
            self._commit.wait(segment, lambda: self._make_visible(entries, numbers))
        except OSError as error:
            self._fault = f"buffer={self._directory}: a sync failed ({error.strerror}); takes nothing until restarted"
            log.error("%s", self._fault)
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
        segment.append(bytes(data))
        self._end = segment.base + segment.size
        return segment, numbers

    def _make_visible(self, entries: Sequence[BufferEntry], numbers: Sequence[int]) -> None:
        for entry, number in zip(entries, numbers, strict=True):
            self._waiting.setdefault(entry.topic, deque()).append(number)

    def _sync(self, segments: Collection[BufferSegment]) -> None:
        """Runs in a thread of the pool."""
        for segment in segments:
            segment.sync()
        if unnamed := [segment for segment in segments if not segment.named]:
            directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
            for segment in unnamed:
                segment.named = True

    def _delete(self, kept: Sequence[KeptEntry]) -> None:
        try:
            for segment, positions in self._by_segment(sorted(each.handle >> _TIME_BITS for each in kept)):
                self._file_work.run(segment.mark_done, [position - segment.base for position in positions])
                segment.live -= len(positions)
                self._delete_if_drained(segment)
        except OSError as error:
            # The entries leave the queue all the same: a second drain under the same id is better than a stuck queue.
            log.error("buffer=%s: marks of drained entries cannot be written: %s", self._directory, error)
        by_topic: dict[str, set[int]] = {}
        for each in kept:
            by_topic.setdefault(each.entry.topic, set()).add(each.handle)
        for topic, numbers in by_topic.items():
            self._take_out(topic, numbers)

    def _delete_if_drained(self, segment: BufferSegment) -> None:
        if segment.live == 0:
            self._segments.remove(segment)
            self._active = None if segment is self._active else self._active
            self._chunk = (None, 0, b"")
            self._file_work.run(segment.delete)

    def _take_out(self, topic: str, numbers: set[int]) -> None:
        """Remove numbers from the head of the topic's queue; those not at the head are skipped later."""
        waiting = self._waiting[topic]
        ahead = self._removed_ahead.get(topic, set()) | numbers
        while waiting and waiting[0] in ahead:
            ahead.remove(waiting.popleft())
        if ahead:
            self._removed_ahead[topic] = ahead
        else:
            self._removed_ahead.pop(topic, None)
        if not waiting:
            del self._waiting[topic]

    def _waiting_of(self, topic: str) -> Iterable[int]:
        ahead = self._removed_ahead.get(topic)
        waiting = self._waiting[topic]
        return waiting if ahead is None else (number for number in waiting if number not in ahead)

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
        """
        segment = self._segment_of(positions[0])
        held, start, data = self._chunk
        found, used = entries_at(data, start, positions, bytes_max) if held is segment else ([], 0)
        for size in (READ_BYTES, blocks.BLOCK_BYTES_MAX):
            if found:
                break
            data = self._file_work.run(segment.read, size, positions[0] - segment.base)
            self._chunk = (segment, positions[0], data)
            found, used = entries_at(data, positions[0], positions, bytes_max)
        return found, used

    def _report_unreadable(self, position: int) -> None:
        """Report an entry whose bytes have changed. It cannot be sent; its segment is renamed to *.damaged and kept.

        The entry's key is unknown, so its ordering key stays diverted until the next start.
        """
        topic, number = next(
            (topic, number)
            for topic, numbers in self._waiting.items()
            for number in numbers
            if number >> _TIME_BITS == position
        )
        log.error(
            "buffer=%s topic=%s: the entry at %d is damaged and cannot be drained", self._directory, topic, position
        )
        self.damaged += 1
        self._take_out(topic, {number})
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
                    log.error("buffer file=%s offset=%d: %s", segment.path.name, found.offset, error)
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
            log.warning(
                "buffer file=%s: a tail of %d bytes at %d is torn by a crash",
                segment.path.name,
                gap.size,
                gap.offset,
            )
        else:
            log.error("buffer file=%s offset=%d: %d bytes are damaged", segment.path.name, gap.offset, gap.size)
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
