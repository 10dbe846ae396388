"""The repair journal on disk: the intent of each dual write, and what became of it.

Invariants:
1. An entry is in a file before its message is given to the primary: in a segment, or, for a moment, in the mapped file.
   It is not synced: a thread syncs every 5 s, and the file `run` says then up to which time nothing can be lost.
2. A segment is deleted only when each of its entries is done, or was found damaged and reported.
3. After a failed sync nothing more is journalled until a restart: the kernel has dropped the bytes.
4. Positions of a topic's entries are in the order of sending: what a tap has in the mapped file goes to a segment before
   it writes anything else there.

What the journal cannot take is no error for a caller: it is told, and recorded as a range to compare.
"""

import logging
import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gevent
from gevent.event import Event

from common.limited_log import LimitedLog
from common.net.turns import next_turn
from producer_proxy.buffer import blocks
from producer_proxy.buffer.blocks import Block
from producer_proxy.buffer.disk.dead import DeadEntry, DeadList
from producer_proxy.buffer.disk.segment import PartlyWritten, bases
from producer_proxy.buffer.disk.store import SEGMENT_BYTES, hold
from producer_proxy.buffer.disk.threads import in_thread
from producer_proxy.buffer.entry import BufferEntry, EntryError, decode
from producer_proxy.buffer.native import entries_at
from producer_proxy.journal import mapped
from producer_proxy.journal.last_run import MARGIN_MS, LastRun
from producer_proxy.journal.mapped import EncodeIntents, MappedIntents
from producer_proxy.journal.missed import MissedRanges
from producer_proxy.journal.native import intents_of
from producer_proxy.journal.segment import JournalSegment, remove_journal_orphans
from producer_proxy.targets.base import MessageSlice

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.journal"))

BYTES_MAX = 1 << 30
MARK_S = 0.25
"""Age at which marks are written. A crash of the process costs one question for each lost mark."""
TELL_S = 1.0
"""Age at which ranges that no intent covers are written."""
SYNC_S = 5.0
"""Time between two syncs, which calls feel on a small machine. The file `run` then says what survives a power cut."""
RETRY_S = 1.0
READ_BYTES = 1 << 20


class FoundIntent(NamedTuple):
    """An entry that an earlier process has left, without its message; `queue`: at the primary, None: it is not known."""

    position: int
    entry: BufferEntry
    queue: int | None


class WrittenBatch(Protocol):
    """Intents that are written together: a TappedBatch."""

    base: Any

    @property
    def count(self) -> int: ...
    def marks(self, base: int) -> bytes: ...
    def stored_marks(self, base: int) -> bytes: ...


class RepairJournal:
    """Opens the directory.

    Args:
        bytes_max: of all segments. More rides out a longer outage of a secondary.
    Attributes:
        began: position from which on this process' intents lie.
        found: entries that an earlier process has left, oldest first; taken by the caller.
        missed: ranges that no intent covers.
        damaged: entries and ranges of bytes that could not be read.
    Raises:
        BufferInUse: another process holds it. OSError: it cannot be made or read.
    """

    def __init__(
        self, directory: Path, now_ms: Callable[[], int], bytes_max: int = BYTES_MAX, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self.directory, self.now_ms = directory, now_ms
        self._bytes_max, self._segment_bytes = bytes_max, segment_bytes
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = hold(directory)
        self.missed = MissedRanges(directory / "missed", now_ms)
        self.dead = DeadList(directory)
        self.found: list[FoundIntent] = []
        self.damaged = 0
        self._segments: list[JournalSegment] = []
        self._active: JournalSegment | None = None
        self._end = self.bytes = 0
        self._fault, self._is_broken, self._retry_at = "", False, 0.0
        self._unsynced: set[JournalSegment] = set()
        self._done: list[int] = []
        self._done_batches: list[WrittenBatch] = []
        self._stored_batches: list[WrittenBatch] = []
        self._stored: list[tuple[int, int]] = []
        self._last_run = LastRun(directory, now_ms)
        self._stopping = Event()
        self._dirty = Event()
        self._mapped = MappedIntents(directory, self._write, self._last_run.begin)
        remove_journal_orphans(directory)
        for base in bases(directory):
            self._open(JournalSegment(directory, base))
        taken_over, missing_since_ms = self._mapped.take_over()
        self.found += [FoundIntent(position, each._replace(message=b""), None) for position, each in taken_over]
        if missing_since_ms is not None:
            reason = self._fault or "the mapped file cannot be read"
            self.missed.add_span(missing_since_ms - MARGIN_MS, now_ms(), reason)
            self._attempt(self.missed.write)
        self.began = self._end
        if (lost := self._last_run.lost_span(self.found[-1].entry.accepted_at_ms if self.found else None)) is not None:
            self.missed.add_span(*lost, "the machine stopped before the last intents were synced")
        self._keeper = gevent.spawn(self._keep)

    @property
    def fault(self) -> str:
        """Why no intent is taken; empty: they are."""
        return self._fault

    def intend(self, messages: Sequence[MessageSlice]) -> list[int] | None:
        """Write the intents of a batch, in one call of the system; their positions. Not synced.

        None: the journal cannot take them, and `fault` says why.
        """
        positions: list[int] = []

        def encode(position: int, now_ms: int) -> bytes:
            data, found = intents_of(position, now_ms, messages)
            positions.extend(found)
            return data

        return positions if self._write(encode, len(messages)) else None

    def begin(self, batch: Any) -> bool:
        """Give a batch room in the mapped file, for intents that are not synced; False: they have to be written."""
        if self._fault or not self._mapped.begin(batch):
            return False
        self._dirty.set()
        return True

    def keep(self, batch: Any) -> bool:
        """Bring a batch's intents to a segment; whether they are there."""
        return self._mapped.keep(batch)

    def drop(self, batch: Any) -> None:
        """Forget intents that need nothing more and are in no segment."""
        self._mapped.end(batch)

    def write(self, encode: EncodeIntents, count: int) -> bool:
        """Write the blocks of `count` intents of a tap, in one call of the system. Not synced. Whether it took them."""
        return self._mapped.keep_older() and self._write(encode, count)

    def _write(self, encode: EncodeIntents, count: int) -> bool:
        if self._fault and (self._is_broken or time.monotonic() < self._retry_at):
            return False
        if self.bytes >= self._bytes_max:
            self._refuse(f"journal={self.directory}: full at {self._bytes_max} bytes")
            return False
        try:
            segment = self._writable()
            data = encode(segment.base + segment.size, self.now_ms())
            self._end = segment.base + segment.size + len(data)
            segment.append(data)
        except OSError as error:
            self._refuse(f"journal={self.directory}: cannot be written: {error.strerror}")
            return False
        except PartlyWritten as error:
            self._active = None  # nothing more is written behind such a part
            self._refuse(f"journal={self.directory}: {error}")
            return False
        segment.live += count
        self.bytes += len(data)
        self._fault = ""
        self._unsynced.add(segment)
        self._dirty.set()
        return True

    def note_stored(self, stored: Sequence[tuple[int, int]]) -> None:
        """Note that the primary has these entries: (position, queue). Written within MARK_S."""
        self._stored += stored
        self._dirty.set()

    def note_done(self, positions: Sequence[int]) -> None:
        """Note that these entries need nothing more. Written within MARK_S."""
        self._done += positions
        self._dirty.set()

    def note_all_stored(self, batch: WrittenBatch) -> None:
        """Note that the primary has all messages of a batch that `write` took. Written within MARK_S."""
        self._stored_batches.append(batch)
        self._dirty.set()

    def note_all_done(self, batches: Iterable[WrittenBatch]) -> None:
        """Note that all intents of batches need nothing more. Written within MARK_S, for those in segments."""
        for each in batches:
            if each.base is None:
                self._mapped.end(each)
            else:
                self._done_batches.append(each)
                self._dirty.set()

    def read(self, positions: Sequence[int]) -> list[BufferEntry | None]:
        """The entries at these positions; None where the bytes have changed. Blocks. Raises OSError."""
        by_position: dict[int, BufferEntry] = {}
        for segment, some in self._by_segment(sorted(positions)):
            at = 0
            while at < len(some):
                offset = some[at] - segment.base
                found: list[BufferEntry] = []
                for size in (READ_BYTES, blocks.BLOCK_BYTES_MAX):
                    data = in_thread(segment.read, size, offset)
                    found, _ = entries_at(data, some[at], some[at:], READ_BYTES)
                    if found:
                        break
                if not found:
                    self._report_changed(segment, some[at])
                by_position.update(zip(some[at:], found, strict=False))
                at += max(1, len(found))
        return [by_position.get(position) for position in positions]

    def give_up(self, entry: BufferEntry, reason: str) -> None:
        """Put an entry that the secondary will never take on the dead-letter list, durably. Blocks. Raises OSError."""
        in_thread(self.dead.append, [DeadEntry(self.now_ms(), reason, entry)])

    def close(self) -> None:
        """Write what was noted, sync, and release the files. Entries that are not done stay."""
        self._mapped.keep_older()
        self._stopping.set()
        self._dirty.set()
        self._keeper.join()
        self._mapped.close()
        for segment in list(self._segments):
            if not segment.live and segment is self._active:
                self._delete(segment)
            segment.close()
        self._last_run.end(is_complete=not self._is_broken and not self._mapped.batches)
        os.close(self._lock)

    def _writable(self) -> JournalSegment:
        segment = self._active
        if segment is None or segment.size >= self._segment_bytes:
            self._last_run.begin()
            segment = JournalSegment(self.directory, self._end)
            segment.create()
            self._segments.append(segment)
            self._active = segment
            self.bytes += segment.size
        return segment

    def _refuse(self, fault: str) -> None:
        if not self._fault:
            limited.error("%s: secondaries are not written meanwhile, what is missed is recorded", fault)
        self._fault, self._retry_at = fault, time.monotonic() + RETRY_S
        self._dirty.set()

    def _keep(self) -> None:
        """Write marks every MARK_S, sync every SYNC_S, both at the end; nothing while there is nothing to do."""
        synced_at = told_at = time.monotonic()
        is_last = False
        while not is_last:
            self._dirty.wait()
            self._dirty.clear()
            is_last = self._stopping.wait(MARK_S)
            began, began_ms = time.monotonic(), self.now_ms()
            while (old := self._mapped.begun_before(began - mapped.MOMENT_S)) and self._mapped.keep(old[0]):
                next_turn()
            self._write_marks()
            if self.missed.is_dirty and (is_last or began - told_at >= TELL_S):
                self._attempt(self.missed.write)
                told_at = time.monotonic()
            if is_last or began - synced_at >= SYNC_S:
                self._sync()
                synced_at = time.monotonic()
                if not old and not self._fault:  # all that is older than a moment is copied, or in a segment and synced
                    self._attempt(self._last_run.note_safe, began_ms)
            if self._unsynced or self.missed.is_dirty or self._mapped.batches:
                self._dirty.set()

    def _write_marks(self) -> None:
        done, self._done = sorted(self._done), []
        stored, self._stored = self._stored, []
        batches, self._stored_batches = self._stored_batches, []
        # First: a segment whose last entry is done is deleted.
        for segment, written in self._batches_by_segment(batches):
            encoded = []
            for each in written:
                encoded.append(each.stored_marks(segment.base))
                next_turn()
            self._attempt(segment.write_stored, b"".join(encoded))
        if stored:
            finished = set(done)
            wanted = dict(each for each in stored if each[0] not in finished)
            for segment, some in self._by_segment(sorted(wanted)):
                marks = [(position - segment.base, wanted[position]) for position in some]
                self._attempt(segment.mark_stored, marks)
        for segment, some in self._by_segment(done):
            segment.live -= len(some)
            if segment.live or segment is self._active:
                self._attempt(segment.mark_done, [position - segment.base for position in some])
            self._delete_if_done(segment)
        self._mark_batches()

    def _mark_batches(self) -> None:
        """As for single entries; each batch lies in one segment."""
        done, self._done_batches = self._done_batches, []
        for segment, some in self._batches_by_segment(done):
            segment.live -= sum(each.count for each in some)
            if segment.live or segment is self._active:
                self._attempt(segment.write_done, b"".join([each.marks(segment.base) for each in some]))
            self._delete_if_done(segment)

    def _batches_by_segment(self, batches: list[WrittenBatch]) -> list[tuple[JournalSegment, list[WrittenBatch]]]:
        groups: dict[JournalSegment, list[WrittenBatch]] = {}
        for each in batches:
            found = bisect_right(self._segments, each.base, key=lambda segment: segment.base) - 1
            groups.setdefault(self._segments[found], []).append(each)
        return list(groups.items())

    def _delete_if_done(self, segment: JournalSegment) -> None:
        if not segment.live and (segment is not self._active or segment.size >= self._segment_bytes):
            self._delete(segment)

    def _attempt(self, work: Callable, *arguments: object) -> None:
        """Write marks or ranges. A lost mark costs a question, or a copy under the same id, after a crash."""
        try:
            in_thread(work, *arguments)
        except OSError as error:
            limited.error("journal=%s: marks or ranges to compare cannot be written: %s", self.directory, error)

    def _sync(self) -> None:
        segments, self._unsynced = [each for each in self._unsynced if each in self._segments], set()
        try:
            for segment in segments:
                in_thread(segment.sync)
        except OSError as error:
            self._is_broken = True
            self._fault = (
                f"journal={self.directory}: a sync failed ({error.strerror}); it takes nothing until restarted"
            )
            limited.error("%s", self._fault)

    def _delete(self, segment: JournalSegment) -> None:
        self._segments.remove(segment)
        self._unsynced.discard(segment)
        if segment is self._active:
            self._active = None
        self.bytes -= segment.size
        self._attempt(segment.delete)

    def _by_segment(self, positions: list[int]) -> list[tuple[JournalSegment, list[int]]]:
        """Group ascending positions by segment."""
        groups, at = [], 0
        while at < len(positions):
            found = bisect_right(self._segments, positions[at], key=lambda segment: segment.base) - 1
            segment = self._segments[found]
            end = bisect_left(positions, segment.base + segment.size, at)
            groups.append((segment, positions[at:end]))
            at = end
        return groups

    def _report_changed(self, segment: JournalSegment, position: int) -> None:
        limited.error("journal=%s: the entry at %d is damaged and cannot be repaired", self.directory, position)
        self.damaged += 1
        segment.damaged = True
        self.missed.add_span(self.now_ms(), self.now_ms(), f"the entry at {position} is damaged")

    def _open(self, segment: JournalSegment) -> None:
        queues = segment.stored()
        for found in segment.scan():
            if not isinstance(found, Block):
                if not found.torn:
                    self._report_changed(segment, segment.base + found.offset)
                continue
            try:
                entry = decode(found.payload)
            except EntryError:
                self._report_changed(segment, segment.base + found.offset)
                continue
            self.found.append(
                FoundIntent(segment.base + found.offset, entry._replace(message=b""), queues.get(found.offset))
            )
            segment.live += 1
        self._end = max(self._end, segment.base + blocks.padded(segment.size))
        if not segment.live:
            segment.delete()
            return
        self._segments.append(segment)
        self.bytes += segment.size
