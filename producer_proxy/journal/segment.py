"""One segment of the journal: a segment of the disk buffer, and a file with what the primary has answered.

    stored  %020d.stored beside its segment   16 bytes per entry that the primary has: u32 offset in the segment ‖
                                              u32 queue ‖ u32 crc32c of the entry's position and the queue ‖ u32 0

Little-endian. A lost or damaged mark costs a question to the primary.
"""

import os
import struct
from collections.abc import Iterable
from pathlib import Path

import google_crc32c

from producer_proxy.buffer.disk.segment import BufferSegment, remove_orphans

_MARK = struct.Struct("<IIII")
_COVERED = struct.Struct("<QI")


class JournalSegment(BufferSegment):
    """A segment's three files."""

    def __init__(self, directory: Path, base: int) -> None:
        super().__init__(directory, base)
        self.stored_path = self.path.with_suffix(".stored")
        self._stored_file = -1

    def mark_stored(self, marks: Iterable[tuple[int, int]]) -> None:
        """Note entries that the primary has, as (offset, queue). Survives the process, not a power cut. Raises OSError."""
        self.write_stored(b"".join(pack_stored(self.base, offset, queue) for offset, queue in marks))

    def write_stored(self, data: bytes) -> None:
        """As `mark_stored`, with the marks' bytes."""
        if self._stored_file < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._stored_file = os.open(self.stored_path, flags, 0o600)
        written = os.write(self._stored_file, data)
        if written != len(data):  # a part of a mark would make all later ones unreadable
            os.ftruncate(self._stored_file, os.fstat(self._stored_file).st_size - written % _MARK.size)
            raise OSError(28, "no space for the marks")

    def stored(self) -> dict[int, int]:
        """The queue at the primary by the entry's offset, of the entries with a whole mark."""
        try:
            return stored_queues(self.stored_path.read_bytes(), self.base)
        except FileNotFoundError:
            return {}

    def delete(self) -> None:
        super().delete()
        self.stored_path.unlink(missing_ok=True)

    def close(self) -> None:
        super().close()
        if self._stored_file >= 0:
            os.close(self._stored_file)
            self._stored_file = -1


def pack_stored(base: int, offset: int, queue: int) -> bytes:
    return _MARK.pack(offset, queue, google_crc32c.value(_COVERED.pack(base + offset, queue)), 0)


def stored_queues(data: bytes, base: int) -> dict[int, int]:
    """Queues by offset from the bytes of a `.stored` file."""
    whole = len(data) - len(data) % _MARK.size
    return {
        offset: queue
        for offset, queue, checksum, _ in _MARK.iter_unpack(data[:whole])
        if google_crc32c.value(_COVERED.pack(base + offset, queue)) == checksum
    }


def remove_journal_orphans(directory: Path) -> None:
    """Delete marks whose segment is gone, after a crash between the deletions."""
    remove_orphans(directory)
    for path in directory.glob("*.stored"):
        if not path.with_suffix(".buf").exists():
            path.unlink()
