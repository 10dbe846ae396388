"""One segment: a file of blocks, and a file with the marks of drained ones.

Both are deleted when all blocks are drained.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from producer_proxy.buffer import blocks
from producer_proxy.buffer.blocks import Block, Gap
from producer_proxy.buffer.native import marks_of


class PartlyWritten(Exception):
    """A part of the data may be in the file, and could not be cut off."""


class BufferSegment:
    """A segment's two files.

    Attributes:
        base: position of its first byte.
        size: bytes in use.
        live: entries that are not drained, entries whose sync still runs included.
        unmarked: offsets of drained entries whose marks could not be written; they are written with the next ones.
        damaged: some bytes are not a valid entry; the file is then renamed to *.damaged instead of deleted.
        named: the file's name in the directory is durable.
    """

    def __init__(self, directory: Path, base: int) -> None:
        self.base = base
        self.path = directory / f"{base:020d}.buf"
        self.done_path = self.path.with_suffix(".done")
        self.size = self.live = 0
        self.unmarked: list[int] = []
        self.damaged = self.named = False
        self._file = -1
        self._done_file = -1

    def create(self) -> None:
        """Create the file with its head. Raises OSError; then no file is left, or one without an entry."""
        # Not O_EXCL: a file that could not be removed after an earlier failure has no entry.
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self.append(blocks.SEGMENT_HEAD.pack(blocks.SEGMENT_MAGIC, self.base))
        except OSError:
            with suppress(OSError):
                self.path.unlink()
            self.close()
            raise

    def scan(self) -> Iterator[Block | Gap]:
        """Open an existing file; its blocks that are not drained, and the gaps. Nothing is appended to it any more."""
        self._file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        data = self.path.read_bytes()
        self.size, self.named = len(data), True
        done = self._done()
        for found in blocks.blocks(data, self.base):
            if isinstance(found, Gap):
                self.damaged = self.damaged or not found.torn
                yield found
            elif found.offset not in done:
                yield found

    def append(self, data: bytes | memoryview) -> int:
        """Write at the end, all or nothing; returns the offset. Not durable before `sync()`.

        Raises:
            OSError: nothing of it is in the file. PartlyWritten: a part may be.
        """
        offset = self.size
        try:
            written = os.pwrite(self._file, data, offset)
            while 0 < written < len(data):
                more = os.pwrite(self._file, data[written:], offset + written)
                written = written + more if more else -1
            if written != len(data):
                raise OSError(28, "no space for the whole of it")
        except OSError as error:
            try:
                os.ftruncate(self._file, offset)
            except OSError:
                raise PartlyWritten(f"{self.path}: cannot be cut off after a failed write: {error}") from error
            raise
        self.size += len(data)
        return offset

    def sync(self) -> None:
        """fdatasync. Blocks the thread. Raises OSError, also when the name leads to another file or to none."""
        os.fdatasync(self._file)
        if not os.path.samestat(os.stat(self.path), os.fstat(self._file)):
            raise OSError(errno.ESTALE, f"{self.path} is another file now")

    def read(self, size: int, offset: int) -> bytes:
        return os.pread(self._file, size, offset)

    def mark_done(self, offsets: list[int]) -> None:
        """Mark entries that are in the engine.

        Marks survive the process, not a power cut: a lost one costs a copy under the same id.
        """
        self.write_done(marks_of(self.base, offsets))

    def write_done(self, marks: bytes) -> None:
        """As `mark_done`, with the marks' bytes."""
        if self._done_file < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._done_file = os.open(self.done_path, flags, 0o600)
        written = os.write(self._done_file, marks)
        if written != len(marks):  # a part of a mark would make all later ones unreadable
            os.ftruncate(self._done_file, os.fstat(self._done_file).st_size - written % blocks.DONE_BYTES)
            raise OSError(errno.ENOSPC, "no space for the marks")

    def delete(self) -> None:
        """Remove both files, the marks last: without its marks a segment would be drained again."""
        if self.damaged:
            self.path.rename(self.path.with_suffix(".damaged"))
        self.path.unlink(missing_ok=True)
        self.done_path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        for file in (self._file, self._done_file):
            if file >= 0:
                os.close(file)
        self._file = self._done_file = -1

    def _done(self) -> set[int]:
        try:
            return blocks.done_offsets(self.done_path.read_bytes(), self.base)
        except FileNotFoundError:
            return set()


def remove_orphans(directory: Path) -> None:
    """Delete marks whose segment is gone, after a crash between the two deletions.

    A later segment of that name must not use them.
    """
    for path in directory.glob("*.done"):
        if not path.with_suffix(".buf").exists():
            path.unlink()


def bases(directory: Path) -> list[int]:
    """Positions of the segments in the directory, oldest first."""
    return sorted(int(path.stem) for path in directory.glob("*.buf") if path.stem.isdigit())
