"""Segment files: creating one, opening one, and the set of sealed ones.

A segment appears under its name only when it is allocated, has its header and is synced, so a crash leaves no
incomplete one.
"""

import errno
import logging
from collections import OrderedDict, deque
from collections.abc import Callable

from engine.env.base import Env, File
from engine.errors import CorruptionError, DiskFullError
from engine.log.format import SEGMENT_HEADER_SIZE, SegmentHeader, parse_segment_header, segment_name
from engine.log.segment.native import SealedIndex, SegmentIndex
from engine.log.segment.side_files import SideFiles, side_files

logger = logging.getLogger(__name__)


class Segment:
    """One segment file and its index: `index` in memory while it is written or not yet sealed, then `sealed`."""

    def __init__(self, path: str, header: SegmentHeader, file: File) -> None:
        self.path = path
        self.header = header
        self.file = file
        self.base = header.base
        self.index: SegmentIndex | None = None
        self.sealed: SealedIndex | None = None
        self.end_at = SEGMENT_HEADER_SIZE
        """Byte address after the last batch. Out of date for the active segment: see the appender's end position."""

    @property
    def next_base(self) -> int:
        """Position of the next segment. Positions are file addresses, so the unused end of a file is a gap in them."""
        return self.base + self.header.size

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

    Raises DiskFullError and leaves nothing then.
    """
    path = f"{directory}/{segment_name(header.base)}"
    making = path + ".tmp"
    file = env.open(making, create=True)
    try:
        file.allocate(header.size)
        file.write_at(header.pack(), 0)
        file.sync()
        env.rename(making, path)
        env.sync_directory(directory)
    except OSError as error:
        file.close()
        env.unlink(making)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"{path}: no room for a segment of {header.size} bytes: free some disk space"
            ) from error
        env.die(f"{path}: the segment cannot be created: {error}")
    file.path = path
    return Segment(path, header, file)


def open_segment(env: Env, directory: str, base: int, fallback: SegmentHeader | None = None) -> Segment:
    """Open it by its name. `fallback` stands in for a damaged header.

    Raises CorruptionError without one, VersionError.
    """
    path = f"{directory}/{segment_name(base)}"
    file = env.open(path)
    header = parse_segment_header(file.read_at(SEGMENT_HEADER_SIZE, 0), path)
    if header is None or header.base != base:
        if fallback is None:
            file.close()
            raise CorruptionError(path, base, SEGMENT_HEADER_SIZE, "the segment's header does not verify")
        logger.error(
            "file=%s position=%d: the segment's header does not verify; its batches are read nevertheless", path, base
        )
        header = fallback
    return Segment(path, header, file)


class SealedSegments:
    """Sealed segments of a log, opened on first use; the least recently used are closed again."""

    def __init__(self, bases: list[int], open_max: int, opener: Callable[[int], Segment], side: SideFiles) -> None:
        self.bases = set(bases)
        self.side = side
        """Sizes of the files beside them."""
        self._open_max = open_max
        self._opener = opener
        self._opened: OrderedDict[int, Segment] = OrderedDict()
        self._arrived: deque[Segment] = deque()

    def get(self, base: int) -> Segment | None:
        """The segment with its index, or None when there is none (any more). May read the whole index file, once."""
        while self._arrived:
            self._keep(self._arrived.popleft())
        segment = self._opened.get(base)
        if segment is not None:
            self._opened.move_to_end(base)
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

    def remove(self, base: int) -> None:
        """Remove it from what readers see and close its file. The mapping of its index ends with the segment object."""
        segment = self.get(base)
        self.bases.discard(base)
        if segment is not None:
            del self._opened[base]
            segment.close()

    def _keep(self, segment: Segment) -> None:
        self._opened[segment.base] = segment
        while len(self._opened) > self._open_max:
            self._opened.popitem(last=False)[1].close()

    def close(self) -> None:
        """Close all files."""
        while self._arrived:
            self._arrived.popleft().close()
        while self._opened:
            self._opened.popitem()[1].close()
