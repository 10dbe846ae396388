"""The dead-letter list of a disk buffer: entries that the engine will never take, each with the reason.

`dead.buf` holds the entries; `dead.done` the marks of those that an operator had sent again. A writer holds the flock
of `dead.buf`, so that the list can be emptied while its proxy runs.
"""

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from common.config.files import sync_directory
from producer_proxy.buffer import blocks
from producer_proxy.buffer.blocks import Block
from producer_proxy.buffer.entry import BufferEntry, decode

NAME, DONE_NAME = "dead.buf", "dead.done"
BYTES_MAX = 256 << 20


class DeadEntry(NamedTuple):
    """An entry of the list; `offset` identifies it in its file, 0 in one that is not written yet."""

    at_ms: int
    reason: str
    entry: BufferEntry
    offset: int = 0


class DeadList:
    """Appends to DIR/dead.buf. Its entries stay until an operator has them sent again, or removes the file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count, self._seen = 0, (-1, -1)

    @property
    def count(self) -> int:
        """Number of entries; the file is read again only after a change."""
        seen = (_size(self._directory / NAME), _size(self._directory / DONE_NAME))
        if seen != self._seen:
            self._count, self._seen = sum(1 for _ in read(self._directory)), seen
        return self._count

    def append(self, buried: list[DeadEntry]) -> None:
        """Append entries, durably on return; blocks the thread. Raises OSError, also when the list is full."""
        with _locked(self._directory) as file:
            size = os.fstat(file).st_size
            data = b"" if size else blocks.SEGMENT_HEAD.pack(blocks.SEGMENT_MAGIC, 0)
            start = blocks.padded(size)  # a torn end stays in the file as a gap
            for each in buried:
                payload = blocks.pack_dead(each.at_ms, each.reason, each.entry.encode())
                data += blocks.pack_block(blocks.DEAD, start + len(data), payload)
            path = self._directory / NAME
            if start + len(data) > BYTES_MAX:
                raise OSError(28, f"{path}: the dead-letter list is full: send it again or export it, then remove it")
            if os.pwrite(file, data, start) != len(data):
                raise OSError(28, f"{path}: no space")
            os.fsync(file)
            if not size:
                sync_directory(self._directory)  # the file is new


def read(directory: Path) -> Iterator[DeadEntry]:
    """All readable entries of a directory's list that were not sent again."""
    try:
        data = (directory / NAME).read_bytes()
    except FileNotFoundError:
        return
    done = _done(directory)
    for block in blocks.blocks(data, 0):
        if isinstance(block, Block) and block.kind == blocks.DEAD and block.offset not in done:
            at_ms, reason, entry = blocks.unpack_dead(block.payload)
            yield DeadEntry(at_ms, reason, decode(entry), block.offset)


def mark_done(directory: Path, offsets: Collection[int]) -> None:
    """Mark entries that are in the engine, durably. A list without further entries is removed. Raises OSError."""
    with _locked(directory):
        marks = b"".join(blocks.pack_done(offset, offset) for offset in offsets)
        file = os.open(directory / DONE_NAME, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            end = os.fstat(file).st_size
            if os.pwrite(file, marks, end - end % blocks.DONE_BYTES) != len(marks):
                raise OSError(28, f"{directory / DONE_NAME}: no space")
            os.fsync(file)
        finally:
            os.close(file)
        if next(read(directory), None) is None:
            # The marks first: they must not apply to a later list. After a crash in between, entries are sent again.
            (directory / DONE_NAME).unlink()
            sync_directory(directory)
            (directory / NAME).unlink()
        sync_directory(directory)


@contextmanager
def _locked(directory: Path) -> Iterator[int]:
    """The list's file, created if it is missing, with its lock. Blocks the thread while another process holds it."""
    path = directory / NAME
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and os.stat(path).st_ino == os.fstat(file).st_ino:
                yield file
                return
        finally:
            os.close(file)


def _done(directory: Path) -> set[int]:
    try:
        return blocks.done_offsets((directory / DONE_NAME).read_bytes(), 0)
    except FileNotFoundError:
        return set()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
