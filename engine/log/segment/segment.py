"""Segment files: creating one, opening one, and the set of sealed ones.

A segment appears under its name only when it is allocated, has its header and is synced, so a crash leaves no
incomplete one.
"""

import errno
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from common.limited_log import LimitedLog
from engine.env.base import Env, File
from engine.errors import CorruptionError, DiskFullError
from engine.log.format import (
    DIRECTORY_ENTRY,
    INDEX_ENTRY,
    SEGMENT_HEADER_SIZE,
    SegmentHeader,
    parse_segment_header,
    segment_name,
)
from engine.log.segment.native import SealedIndex, SegmentIndex
from engine.log.segment.side_files import SideFiles, side_files

limited = LimitedLog(logging.getLogger(__name__))

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
"""Errors after which a file cannot be made now, and can be made later: no space or inode, no quota, no descriptor."""

INDEX_BYTES_MAX = 256 << 20
"""Memory of the indexes of open sealed segments, except that the newest one always stays."""

UNREAD_MAX = 1
"""Newest sealed segments that stay open on a slave although nothing has read them. Each index has up to 31 MB."""


class Segment:
    """One segment file and its index: `index` in memory while it is written or not yet sealed, then `sealed`."""

    def __init__(self, path: str, header: SegmentHeader, file: File) -> None:
        self.path = path
        self.header = header
        self.file = file
        self.base = header.base
        self.index: SegmentIndex | None = None
        self.sealed: SealedIndex | None = None
        self.is_partial = False
        """Whether its index was made while the disk could not read all of it, so that batches may be missing."""
        self.is_header_made = self.is_header_unread = False
        """Whether the header is made up, since that of the file is damaged or cannot be read; whether the latter."""
        self.end_at = SEGMENT_HEADER_SIZE
        """Byte address after the last batch. Out of date for the active segment: see the appender's end position."""

    @property
    def next_base(self) -> int:
        """Position of the next segment. Positions are file addresses, so the unused end of a file is a gap in them."""
        return self.base + self.header.size

    def set_created(self, created_ms: int) -> None:
        """Complete a made-up header. Nothing but its index file, or its first batch, tells when it was created."""
        self.header = replace(self.header, created_ms=created_ms)

    def open_index(self, expected: int = 0) -> SegmentIndex:
        """Begin an empty index in memory, with room for `expected` queues."""
        self.index = SegmentIndex(self.base, self.header.created_ms, expected)
        return self.index

    def source(self) -> SegmentIndex | SealedIndex:
        """The index that has its entries now."""
        source = self.sealed or self.index
        assert source is not None
        return source

    def close(self) -> None:
        """Close the file; the index mapping ends with its last user."""
        self.file.close()


def create_segment(env: Env, directory: str, header: SegmentHeader) -> Segment:
    """Create the file: allocate, write the header, sync, name it. Blocks.

    Raises DiskFullError, and leaves nothing then: there is no space, inode, quota or descriptor for it.
    """
    path = f"{directory}/{segment_name(header.base)}"
    making = path + ".tmp"
    file: File | None = None
    try:
        file = env.open(making, create=True)
        file.allocate(header.size)
        write_whole(file, header.pack())
        file.sync()
        env.rename(making, path)
        env.sync_directory(directory)
    except OSError as error:
        if file is not None:
            file.close()
        if error.errno in NO_ROOM:
            with suppress(OSError):  # the next try empties it, and a start removes it
                env.unlink(making)
            raise DiskFullError(
                f"{path}: no room for a segment of {header.size} bytes: {os.strerror(error.errno)}"
            ) from error
        env.die(f"{path}: the segment cannot be created: {error}")
    assert file is not None
    file.path = path
    return Segment(path, header, file)


def replace_header(env: Env, segment: Segment, header: SegmentHeader) -> None:
    """Give an empty segment another header of the same base and size. Blocks; durable on return."""
    try:
        write_whole(segment.file, header.pack())
        segment.file.sync()
    except OSError as error:
        env.die(f"{segment.path}: its header cannot be written: {error}")
    segment.header = header


def note_previous_end(env: Env, segment: Segment, end_at: int) -> None:
    """Note in an empty segment's header where the segment before ends. In the page cache on return.

    It needs no sync: the first batch lies in the same sector, so no disk has the batch without it.

    Raises DiskFullError: some file systems need room for what is written again.
    """
    header = replace(segment.header, previous_end=end_at)
    try:
        write_whole(segment.file, header.pack())
    except OSError as error:
        if error.errno in NO_ROOM:
            raise DiskFullError(f"{segment.path}: no room for its header: {os.strerror(error.errno)}") from error
        env.die(f"{segment.path}: its header cannot be written: {error}")
    segment.header = header


def write_whole(file: File, data: bytes, at: int = 0) -> None:
    """Write all of the bytes at the address. Raises OSError; then a part may be written."""
    done = 0
    while done < len(data):
        done += file.write_at(data[done:], at + done)


def open_segment(
    env: Env, directory: str, base: int, fallback: SegmentHeader | None = None, *,
    again: Callable[[], bool] = lambda: False,
) -> Segment:  # fmt: skip
    """Open it by its name. `fallback` stands in for a damaged header.

    Args:
        again: asked when the disk cannot read the header: whether to try once more. It may block before it answers.
    Raises:
        CorruptionError: the header is damaged, and there is no fallback.
        VersionError.
    """
    path = f"{directory}/{segment_name(base)}"
    file = env.open(path)
    data = _read_header(file, again)
    try:
        header = None if data is None else parse_segment_header(data, path)
    except BaseException:
        file.close()
        raise
    if header is None or header.base != base:
        if fallback is None:
            file.close()
            raise CorruptionError(path, base, SEGMENT_HEADER_SIZE, "the segment's header does not verify")
        limited.error(
            "file=%s position=%d: the segment's header does not verify; its batches are read nevertheless", path, base
        )
        made = Segment(path, fallback, file)
        made.is_header_made, made.is_header_unread = True, data is None
        return made
    return Segment(path, header, file)


def _read_header(file: File, again: Callable[[], bool]) -> bytes | None:
    """The header's bytes; None when the disk cannot read them."""
    while True:
        try:
            return file.read_at(SEGMENT_HEADER_SIZE, 0)
        except OSError as error:
            if not again():
                limited.error("file=%s: its header cannot be read: %s", file.path, error)
                return None


def last_crc_of(segment: Segment, last_at: int) -> int | None:
    """Checksum of the segment's last batch, at byte address `last_at` (0: none), which ties its side files to it.

    None when the disk cannot read it: then nothing tells whether a side file is of an earlier state.
    """
    try:
        return int.from_bytes(segment.file.read_at(4, last_at), "little") if last_at else 0
    except OSError as error:
        limited.error("file=%s: its last batch cannot be read: %s", segment.path, error)
        return None


def read_or_nothing(segment: Segment, at: int, size: int) -> bytes:
    """Bytes of the segment; empty when the disk cannot read them, which is logged."""
    try:
        return segment.file.read_at(size, at)
    except OSError as error:
        limited.error("file=%s position=%d: cannot be read: %s", segment.path, segment.base + at, error)
        return b""


class SealedSegments:
    """Sealed segments of a log, opened on first use; the least recently used are closed again.

    Args:
        open_max: number of segments kept open, as long as their indexes have at most INDEX_BYTES_MAX.
    """

    def __init__(self, bases: list[int], open_max: int, opener: Callable[[int], Segment], side: SideFiles) -> None:
        self.bases = set(bases)
        self.side = side
        """Sizes of the files beside them."""
        self._open_max = open_max
        self._opener = opener
        self._opened: OrderedDict[int, Segment] = OrderedDict()
        self._pinned: set[int] = set()
        self._arrived: deque[Segment] = deque()
        self._unread: dict[int, None] = {}
        """Bases of open segments that nothing has read since they were added, oldest first."""

    def get(self, base: int) -> Segment | None:
        """The segment with its index, or None when there is none (any more). May read the whole index file, once."""
        self.take_added()
        segment = self._opened.get(base)
        if segment is not None:
            self._opened.move_to_end(base)
            self._unread.pop(base, None)
            return segment
        if base not in self.bases:
            return None
        segment = self._opener(base)
        self._keep(segment)
        return segment

    def add(self, segment: Segment) -> None:
        """Add an open, sealed segment. Safe in another thread; therefore it closes nothing."""
        for path in side_files(segment.path):
            self.side.weigh(path)
        self._arrived.append(segment)
        self.bases.add(segment.base)

    def take_added(self) -> None:
        """Count the segments that were added among the open ones, and close what is beyond the limits."""
        while self._arrived:
            segment = self._arrived.popleft()
            self._keep(segment)
            self._unread[segment.base] = None

    def close_unread(self) -> None:
        """Close the segments that nothing has read since they were added, except for the newest ones."""
        self.take_added()
        for base in list(self._unread)[:-UNREAD_MAX]:
            if base not in self._pinned:
                self._close(base)

    def remove(self, base: int) -> None:
        """Remove it from what readers see and close its file. Its index ends with the segment object."""
        segment = self.get(base)
        self.bases.discard(base)
        if segment is not None:
            self._close(base)

    def pin(self, base: int) -> None:
        """Keep the segment open until `unpin`, however many others are read: it is read over several turns."""
        self._pinned.add(base)

    def unpin(self, base: int) -> None:
        """Let the segment be closed again."""
        self._pinned.discard(base)

    def _keep(self, segment: Segment) -> None:
        before = self._opened.get(segment.base)
        if before is not None:
            before.close()  # it was repaired, with another index
        self._opened[segment.base] = segment
        size = sum(map(_index_bytes, self._opened.values()))
        for base in [base for base in self._opened if base not in self._pinned and base != segment.base]:
            if len(self._opened) <= self._open_max and size <= INDEX_BYTES_MAX:
                break
            size -= _index_bytes(self._opened[base])
            self._close(base)

    def _close(self, base: int) -> None:
        self._unread.pop(base, None)
        self._opened.pop(base).close()

    def close(self) -> None:
        """Close all files."""
        while self._arrived:
            self._arrived.popleft().close()
        while self._opened:
            self._opened.popitem()[1].close()


def _index_bytes(segment: Segment) -> int:
    index = segment.sealed
    return index.directory_count * DIRECTORY_ENTRY.size + index.entry_count * INDEX_ENTRY.size if index else 0
